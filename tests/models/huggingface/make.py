"""Write the folders beside this file with PyTorch and Transformers. Run by hand, never by the tests.

    python -m venv torch && torch/bin/pip install torch==2.13.0 transformers==5.23.0 "numpy<2"
    torch/bin/python tests/models/huggingface/make.py

Each folder is what Transformers itself writes for a tiny random network, plus expected.json: the
last hidden state and the logits (of labels, or of words) that PyTorch computes for INPUT_IDS.
"""

import json
from pathlib import Path

import torch
import transformers as hf

HERE = Path(__file__).parent
INPUT_IDS = [[1, 7, 8, 9, 2, 0, 0], [1, 10, 11, 12, 13, 14, 2]]
VOCABULARY = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", *"abcdefghijk"]
SIZES = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 16,
    "pad_token_id": 0,
}
LABELS = {0: "neg", 1: "mid", 2: "pos"}
# fmt: off
MODELS = {
    "bert-classifier": (hf.BertForSequenceClassification, hf.BertConfig, {}, "safetensors"),
    "bert-encoder": (hf.BertModel, hf.BertConfig, {}, "zip"),
    "bert-masked-lm": (hf.BertForMaskedLM, hf.BertConfig, {}, "legacy"),
    "roberta-classifier": (
        hf.RobertaForSequenceClassification, hf.RobertaConfig, {"layer_norm_eps": 1e-5}, "safetensors"
    ),
    "electra-classifier": (hf.ElectraForSequenceClassification, hf.ElectraConfig, {"embedding_size": 4}, "safetensors"),
    "ernie-classifier": (hf.ErnieForSequenceClassification, hf.ErnieConfig, {"use_task_id": True}, "safetensors"),
    "roberta-masked-lm": (hf.RobertaForMaskedLM, hf.RobertaConfig, {"layer_norm_eps": 1e-5}, "safetensors"),
    "electra-masked-lm": (hf.ElectraForMaskedLM, hf.ElectraConfig, {"embedding_size": 4}, "safetensors"),
    "ernie-masked-lm": (hf.ErnieForMaskedLM, hf.ErnieConfig, {"use_task_id": True}, "zip"),
}
# fmt: on


def main() -> None:
    torch.manual_seed(0)
    for name, (network_class, config_class, extra, file_format) in MODELS.items():
        config = config_class(**SIZES, **extra)
        if "classifier" in name:
            config.id2label = LABELS
            config.label2id = {label: index for index, label in LABELS.items()}
        network = network_class(config).eval()
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        write(HERE / name, network, file_format)


def write(folder: Path, network, file_format: str) -> None:
    folder.mkdir(exist_ok=True)
    if file_format == "safetensors":
        network.save_pretrained(folder)
    else:
        network.config.architectures = [type(network).__name__]
        network.config.save_pretrained(folder)
        weights = {key: value.clone() for key, value in network.state_dict().items()}
        torch.save(weights, folder / "pytorch_model.bin", _use_new_zipfile_serialization=file_format == "zip")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizerFast", "do_lower_case": true}\n')
    ids = torch.tensor(INPUT_IDS)
    with torch.no_grad():
        output = network(input_ids=ids, attention_mask=(ids != 0).long(), output_hidden_states=True)
    hidden = output.hidden_states[-1]
    expected = {"input_ids": INPUT_IDS, "hidden": hidden.tolist()}
    if "logits" in output and output.logits.ndim == 2:
        expected["logits"] = output.logits.tolist()
    if "masked-lm" in folder.name:
        expected["words"] = output.logits.tolist()  # [rows, length, vocabulary]
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


main()
