import json
import os
import subprocess
import sys

LOAD = """
import nlpctl
from paddlenlp.transformers import AutoTokenizer
try:
    AutoTokenizer.from_pretrained("somebody/cached")
except OSError:
    print("needs the network")
"""


def test_a_cached_community_tokenizer_still_needs_the_network(tmp_path):
    """PaddleNLP 2.8.1, transformers/tokenizer_utils_base.py:1488: it asks for optional files too.

    See models/paddlenlp_hub.py."""
    folder = tmp_path / "models" / "somebody" / "cached"
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    environment = {**os.environ, "PPNLP_HOME": str(tmp_path), "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": ""}
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, env=environment)
    assert "needs the network" in done.stdout, done.stderr
