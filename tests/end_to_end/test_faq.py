"""Every command of docs/faq.md works, on small data and, where it trains, for two steps."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nlpctl.config.library import shipped_recipes

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
PARTS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", DOCUMENT, re.M | re.S))

# Stands in for `nlpctl`: as it is, but two steps and few rows are enough, a hub model is a tiny one of the same layout,
# and a server is stopped once it is healthy.
SHIM = """\
#!/usr/bin/env bash
more=()
if [ "$1" = train ]; then
  more=(--max_steps 2 --threads 1)
  case "$2" in
    *reading/*) more+=(--set "model.name_or_path=$TINY" --set data.max_seq_length=64 --set data.doc_stride=16) ;;
    *matching/*|*indexing/*) more+=(--set "model.name_or_path=$TINY") ;;
  esac
fi
if [ "$1" = export ] || [ "$1" = bench ]; then more=(--rows 16); fi
if [ "$1" = compress ]; then more=(--batch_sizes 1); fi
if [ "$1" = serve ]; then exec "{python}" "{answers}" "$@"; fi
exec "{python}" -m nlpctl "$@" "${{more[@]}}"
"""

SERVED = """\
import signal, subprocess, sys, time, urllib.request
words = sys.argv[1:]
server = subprocess.Popen([sys.executable, "-m", "nlpctl", *words])
address = f"http://127.0.0.1:{words[words.index('--port') + 1]}/health"
for _ in range(240):
    time.sleep(0.5)
    try:
        healthy = urllib.request.urlopen(address).status == 200
    except OSError:
        healthy = False
    if healthy or server.poll() is not None:
        break
server.send_signal(signal.SIGTERM)
sys.exit(0 if healthy and server.wait(60) in (0, 130) else "the server was never healthy")
"""

# The questions of the source documents that nlpctl answers here, by a word of each heading.
QUESTIONS = (
    "own local data", "downloaded to", "samples do I need", "few training samples", "unequal", "vocabulary",
    "pretrained model of my own", "save and load", "resume", "freeze", "metrics during training", "crashes or hangs",
    "same result", "inner layers", "LAC", "CRF", "batched=True", "Semantic indexing or matching", "wordtag",
    "CUDA versions", "set a parameter", "CPU or GPU", "plot loss", "explain a prediction", "large data",
    "several cards", "out of memory", "CPU is slow", "different lengths", "NaN", "word vectors", "share weights",
    "own learning rate", "weights of one layer", "predictions faster", "compress a big model",
    "the same results", "to a server", "static-graph model",
)  # fmt: skip


def commands(text: str) -> list[str]:
    return [line for block in re.findall(r"```bash\n(.*?)```", text, re.S) for line in block.strip().split("\n")]


def test_every_question_is_answered_by_a_command() -> None:
    sections = re.findall(r"^### (.*?)\n(.*?)(?=^### |^## |\Z)", DOCUMENT, re.M | re.S)
    for question in QUESTIONS:
        found = [text for heading, text in sections if question.lower() in heading.lower()]
        assert found, f"nobody answers {question!r}"
        assert any(commands(text) for text in found), f"no command answers {question!r}"


def test_every_faq_recipe_is_in_the_document() -> None:
    shipped = [recipe.name for recipe in shipped_recipes() if recipe.name.startswith("faq/")]
    assert len(shipped) > 10
    assert not [name for name in shipped if f"recipes/{name}.yaml" not in DOCUMENT]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny ERNIE with a vocabulary of Chinese characters, as PaddleNLP saves one."""
    import paddle
    from paddlenlp.transformers import ErnieConfig, ErnieModel, ErnieTokenizer

    paddle.seed(1)
    folder = tmp_path_factory.mktemp("tiny_ernie")
    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", *"的一是在北京大学我你他怎么退款东西答案问题，。？"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    ErnieModel(ErnieConfig(vocab_size=len(words), max_position_embeddings=128, **sizes)).save_pretrained(str(folder))
    ErnieTokenizer(str(folder / "vocab.txt")).save_pretrained(str(folder))
    return folder


def write_data(folder: Path) -> dict[str, str]:
    """Stand-ins for the data sets that recipes name through the environment."""
    chance = random.Random(1)
    for name in ("msra", "cmrc", "bustm", "sst2"):
        (folder / name).mkdir()
    for split in ("train", "dev", "test"):
        pairs = [("北", "B-LOC"), ("京", "I-LOC"), ("大", "O"), ("学", "O"), ("王", "B-PER"), ("中", "B-ORG")]
        lines = ["\n".join("\t".join(pair) for pair in chance.sample(pairs, 6)) for _ in range(40)]
        (folder / "msra" / f"{split}.txt").write_text("\n\n".join(lines) + "\n", encoding="utf-8")
        rows = [{"sentence1": f"怎么退款{i}", "sentence2": f"退款问题{i}", "label": str(i % 2)} for i in range(40)]
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / "bustm" / f"{split}.jsonl").write_text(text, encoding="utf-8")
        text = "".join(f"{chance.choice(('good', 'bad'))} film number {i}\t{i % 2}\n" for i in range(40))
        (folder / "sst2" / f"{split}.tsv").write_text("text\tlabel\n" + text, encoding="utf-8")
        context = "北京大学在北京。" * 9
        answers = [{"text": "北京大学", "answer_start": 0}]
        questions = [{"id": f"{i}", "question": "他在北京的大学？", "answers": answers} for i in range(8)]
        document = {"version": "v1.0", "data": [{"paragraphs": [{"id": "a", "context": context, "qas": questions}]}]}
        (folder / "cmrc" / f"{split}.json").write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    first = (folder / "sst2" / "train.tsv").read_text().split("\n")[:9]
    (folder / "sst2" / "few.tsv").write_text("\n".join(first) + "\n")
    return {f"{name.upper()}_DIR": str(folder / name) for name in ("msra", "cmrc", "bustm", "sst2")}


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_every_command_runs(part: str, tiny_model: Path, tmp_path: Path) -> None:
    lines = commands(PARTS[part])
    assert lines and all("nlpctl " in line for line in lines)
    (tmp_path / "bin").mkdir()
    shim = tmp_path / "bin" / "nlpctl"
    answers = tmp_path / "answers.py"
    answers.write_text(SERVED)
    shim.write_text(SHIM.format(python=sys.executable, answers=answers))
    shim.chmod(0o755)
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    (tmp_path / "sentences.txt").write_text("他在北京大学\n", encoding="utf-8")
    (tmp_path / "terms.tsv").write_text("北京大学\tORG\n", encoding="utf-8")
    path = os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])
    environment = {**os.environ, **write_data(tmp_path), "TINY": str(tiny_model), "PATH": path}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    for line in lines:
        done = subprocess.run(["bash", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\nexit {done.returncode}\n{done.stderr[-1500:]}"
        assert "Traceback" not in done.stderr, line
