"""Write small networks of every family as Transformers saves them, into tests/models/encoders. Never run by the tests.

    python -m venv torch && torch/bin/pip install torch==2.13.0 transformers==5.24.0
    torch/bin/python scripts/make_encoder_fixtures.py             # all but nezha
    torch4/bin/python scripts/make_encoder_fixtures.py nezha      # with transformers==4.46.3, which still has NEZHA

Each folder is a classifier of two layers with random weights and a vocabulary learnt from the documents of this
repository: config.json, model.safetensors, tokenizer.json and its settings. expected.npz has for the TEXTS below their
token ids (`ids`, one after another, `lengths` of each), the last hidden state of every token (`hidden`), the logits
(`logits`), and the ids and logits of pairs of them (`pair_ids`, `pair_types`, `pair_lengths`, `pair_logits`), all
computed one text at a time, so without padding, in 64 bits (files other than modernbert's: in 32). word_head.npz is the
head of a masked language model on the same encoder, and `word_logits` are its answers to the texts 4 and 5.
"""

import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = Path(__file__).parents[1]
OUT = ROOT / "tests" / "models" / "encoders"
LABELS = ("neg", "mid", "pos")
WORDS = 500  # entries of each vocabulary
LONGEST = 40  # tokens
SIZES = {
    "vocab_size": WORDS,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
TEXTS = (
    "", " ", "a", "你", "The quick brown fox jumps over the lazy dog.", "今天天气很好，我们去公园玩。",
    "你好，world!", "PaddleNLP的模型在GPU上训练", "e=mc²", "ﬁnd the ﬂow", "ＡＢＣ１２３", "ﾊﾝｶｸ ｶﾀｶﾅ",
    "한국어 문장", "日本語の文章です。", "Ünïcödé", "café", "cafe\u0301", "e\u0301e\u0300e\u0302",
    "👍🏽 great 👨\u200d👩\u200d👧", "🙂🙂🙂", "x\u200by", "zero\ufeffwidth", "tab\tand\nnewline",
    "  many   blanks  ", "UPPER lower MiXeD", "İstanbul ß ſ", "Ω Å K", "½ ⅓ ㎏ ㍿ ①", "١٢٣ عربي", "שלום",
    "नमस्ते", "ไทย", "a" * 120, "。，、；：？！", "…——“”‘’", "[CLS] [SEP] <s> </s> <mask>", "[MASK]",
    "1,234.56 $ 99%", "user@example.com", "https://example.com/a?b=c&d=e#f", "a_b-c.d/e\\f", "C++ and C#",
    "#hash @name", "the model is trained on data. " * 4, "训练模型需要数据和时间。" * 6, "𠀀𠮷 rare",
    "\U0001f1e8\U0001f1f3 flag", "i\u0307 dotted", "\u0085next\u2028line",
    "I have 2 dogs, 3 cats and 我有一只猫",
)  # fmt: skip
assert len(TEXTS) == 50
BERT = dict(cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", unk_token="[UNK]", mask_token="[MASK]")
ROBERTA = dict(
    bos_token="<s>", cls_token="<s>", eos_token="</s>", sep_token="</s>", pad_token="<pad>", unk_token="<unk>",
    mask_token="<mask>",
)  # fmt: skip


def corpus() -> list[str]:
    """The words of the documents, without rare characters: a vocabulary has to hold them all."""
    files = [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "zh-CN").glob("*.md"))]
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    usual = {character for character, _ in Counter(text).most_common(300)}
    return ["".join(each if each in usual else " " for each in line) for line in text.splitlines()]


def word_pieces(specials: list[str], lowercase: bool = True) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token=next(each for each in specials if "unk" in each.lower())))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(corpus(), trainers.WordPieceTrainer(vocab_size=WORDS, special_tokens=specials))
    return tokenizer


def unigram(specials: list[str], normalizer, unknown: str) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=WORDS, special_tokens=specials, unk_token=unknown)
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def framed(tokenizer: Tokenizer, single: str, pair: str) -> Tokenizer:
    """With the special tokens around a text, and around two."""
    named = [each for each in dict.fromkeys((single + " " + pair).replace(":1", "").split()) if "$" not in each]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(each, tokenizer.token_to_id(each)) for each in named]
    )
    return tokenizer


def fast(tokenizer: Tokenizer, specials: dict, name: str, types: bool) -> hf.PreTrainedTokenizerFast:
    """A tokenizer of Transformers over `tokenizer`; `name` is the class that its settings name."""
    inputs = ["input_ids", "token_type_ids", "attention_mask"] if types else ["input_ids", "attention_mask"]
    wrapped = hf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=LONGEST, model_input_names=inputs, **specials
    )
    wrapped.named = name
    return wrapped


def bert_tokenizer(name: str, types: bool = True, lowercase: bool = True):
    tokenizer = word_pieces(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], lowercase)
    framed(tokenizer, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")
    return fast(tokenizer, BERT, name, types)


def xlm_roberta_tokenizer():
    tokenizer = unigram(["<s>", "<pad>", "</s>", "<unk>", "<mask>"], normalizers.NFKC(), "<unk>")
    framed(tokenizer, "<s> $A </s>", "<s> $A </s> </s> $B </s>")
    return fast(tokenizer, ROBERTA, "XLMRobertaTokenizer", False)


def mpnet_tokenizer():
    tokenizer = word_pieces(["<s>", "<pad>", "</s>", "[UNK]", "<mask>"])
    framed(tokenizer, "<s> $A </s>", "<s> $A </s> </s> $B </s>")
    return fast(tokenizer, ROBERTA | {"unk_token": "[UNK]"}, "MPNetTokenizer", False)


def albert_tokenizer():
    normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()])
    tokenizer = unigram(["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"], normalizer, "<unk>")
    framed(tokenizer, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")
    return fast(tokenizer, BERT | {"pad_token": "<pad>", "unk_token": "<unk>"}, "AlbertTokenizer", True)


def deberta_tokenizer():
    tokenizer = unigram(["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"], normalizers.NFKC(), "[UNK]")
    framed(tokenizer, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")
    return fast(tokenizer, BERT, "DebertaV2Tokenizer", True)


def modernbert_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=WORDS,
        special_tokens=["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    framed(tokenizer, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]")
    return fast(tokenizer, BERT, "PreTrainedTokenizerFast", False)


_V3 = {
    "relative_attention": True, "position_buckets": 8, "max_relative_positions": -1, "share_att_key": True,
    "norm_rel_ebd": "layer_norm", "pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "type_vocab_size": 0,
    "layer_norm_eps": 1e-7, "pooler_dropout": 0, "pooler_hidden_act": "gelu", "pooler_hidden_size": 16,
}  # fmt: skip
# Name of the folder: class prefix in Transformers, other values of its config than SIZES, tokenizer.
FAMILIES = {
    "xlm-roberta": (
        "XLMRoberta", {"pad_token_id": 1, "type_vocab_size": 1, "layer_norm_eps": 1e-5}, xlm_roberta_tokenizer,
    ),
    "distilbert": ("DistilBert", {"hidden_dim": 32}, lambda: bert_tokenizer("DistilBertTokenizer", types=False)),
    "mpnet": ("MPNet", {"pad_token_id": 1, "layer_norm_eps": 1e-5}, mpnet_tokenizer),
    "albert": (
        "Albert", {"embedding_size": 8, "hidden_act": "gelu_new", "num_hidden_layers": 4, "num_hidden_groups": 2},
        albert_tokenizer,
    ),
    "deberta-v3": ("DebertaV2", _V3, deberta_tokenizer),
    # As v2-xlarge: a convolution beside the first layer; token types and projections of positions, as in Erlangshen's.
    "deberta-v2": (
        "DebertaV2",
        _V3 | {"share_att_key": False, "conv_kernel_size": 3, "conv_act": "gelu", "position_buckets": 0,
               "norm_rel_ebd": "none", "type_vocab_size": 2, "position_biased_input": True},
        lambda: bert_tokenizer("BertTokenizer"),
    ),
    "roformer": ("RoFormer", {"embedding_size": 16}, lambda: bert_tokenizer("RoFormerTokenizer")),
    "convbert": (
        "ConvBert", {"embedding_size": 8, "head_ratio": 2, "conv_kernel_size": 5, "num_attention_heads": 4},
        lambda: bert_tokenizer("ConvBertTokenizer"),
    ),
    # Two layers that see everything, two that see four tokens on either side.
    "modernbert": (
        "ModernBert",
        {"num_hidden_layers": 4, "local_attention": 8, "pad_token_id": 3, "bos_token_id": 1, "cls_token_id": 1,
         "eos_token_id": 2, "sep_token_id": 2},
        modernbert_tokenizer,
    ),
    "nezha": ("Nezha", {"max_relative_position": 7}, lambda: bert_tokenizer("BertTokenizer")),
}  # fmt: skip


def main(names: list[str]) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "texts.json").write_text(json.dumps(TEXTS, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    for name in names or [each for each in FAMILIES if each != "nezha"]:
        prefix, extra, make_tokenizer = FAMILIES[name]
        tokenizer = make_tokenizer()
        torch.manual_seed(0)
        values = SIZES | {"vocab_size": len(tokenizer)} | extra
        config = getattr(hf, f"{prefix}Config")(**values)
        config.id2label, config.label2id = dict(enumerate(LABELS)), {label: i for i, label in enumerate(LABELS)}
        network = random(getattr(hf, f"{prefix}ForSequenceClassification")(config))
        words = random(getattr(hf, f"{prefix}ForMaskedLM")(config))
        folder = OUT / name
        folder.mkdir(exist_ok=True)
        network.save_pretrained(folder)
        save_tokenizer(tokenizer, folder)
        words.base_model.load_state_dict(network.base_model.state_dict(), strict=False)
        tied = words.get_input_embeddings().weight.data_ptr()
        head = {
            key: value
            for key, value in words.state_dict().items()
            if not key.startswith(f"{words.base_model_prefix}.") and value.data_ptr() != tied
        }
        np.savez_compressed(folder / "expected.npz", **expected(network.double(), words.double(), tokenizer))
        np.savez_compressed(folder / "word_head.npz", **{key: value.numpy() for key, value in head.items()})
        print(name, sum(file.stat().st_size for file in folder.iterdir()) // 1024, "KiB")


def random(network: torch.nn.Module) -> torch.nn.Module:
    """With weights so large that every part matters: norms, biases, positions."""
    for name, parameter in network.named_parameters():
        if "sinusoidal" not in name and "embed_positions" not in name:
            torch.nn.init.normal_(parameter, std=0.3)
            if "norm" in name.lower() and name.endswith("weight"):
                parameter.data += 1
    return network.eval()


def save_tokenizer(tokenizer, folder: Path) -> None:
    tokenizer.save_pretrained(folder)
    file = folder / "tokenizer_config.json"
    text = file.read_text(encoding="utf-8")
    for generic in ("TokenizersBackend", "PreTrainedTokenizerFast"):
        text = text.replace(f'"{generic}"', f'"{tokenizer.named}"')
    file.write_text(text, encoding="utf-8")
    for each in folder.iterdir():
        each.chmod(0o644)


@torch.no_grad()
def expected(network, words, tokenizer) -> dict[str, np.ndarray]:
    found = {name: [] for name in ("ids", "hidden", "logits", "pair_ids", "pair_types", "pair_logits", "word_logits")}
    lengths, pair_lengths = [], []
    for index, text in enumerate(TEXTS):
        inputs = tokenizer(text, truncation=True, max_length=LONGEST, return_tensors="pt")
        found["ids"].append(inputs["input_ids"][0])
        lengths.append(len(found["ids"][-1]))
        found["hidden"].append(network.base_model(**inputs).last_hidden_state[0])
        found["logits"].append(network(**inputs).logits)
        if index in (4, 5):
            found["word_logits"].append(words(**inputs).logits[0])
        if index % 5 == 4:
            inputs = tokenizer(TEXTS[index - 1], text, truncation=True, max_length=LONGEST, return_tensors="pt")
            ids = inputs["input_ids"][0]
            found["pair_ids"].append(ids)
            found["pair_types"].append(inputs.get("token_type_ids", torch.zeros_like(ids)[None])[0])
            found["pair_logits"].append(network(**inputs).logits)
            pair_lengths.append(len(ids))
    arrays = {name: torch.cat(parts).numpy() for name, parts in found.items()}
    integers = ("ids", "pair_ids", "pair_types")
    arrays = {name: array.astype(np.int32 if name in integers else np.float32) for name, array in arrays.items()}
    return arrays | {"lengths": np.array(lengths), "pair_lengths": np.array(pair_lengths)}


if __name__ == "__main__":
    main(sys.argv[1:])
