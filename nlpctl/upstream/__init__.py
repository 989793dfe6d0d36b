"""Workarounds for bugs in Paddle, PaddleNLP and their tools: one function each, only in this folder.

Each docstring names package, version, file and line, the symptom, and the test in tests/upstream that fails once
upstream fixes the bug. The workaround can then be removed. docs/upstream.md lists all of them. Two need no function:

Why `nlpctl/__init__.py` begins with `import zlib`.

paddlepaddle 2.6.2 (3.1.1 no longer), base/libpaddle.so: it exports zlib's symbols (19 names with `inflate`).
If Python's zlib is first loaded after Paddle, it binds to those, and compressing segfaults or decompression
fails with "zlib.error: Error -2". Python loads zlib late: zipfile, gzip, requests and safetensors downloads
bring it in. So it is bound first, by importing the package.
Test: tests/upstream/test_zlib_order.py.

Why models are not loaded with `from_pretrained`.

PaddleNLP 2.8.1; the workaround is nlpctl/models, which builds, reads and assigns by itself.

- transformers/model_utils.py:2231, utils/serialization.py:160, paddle/framework/io.py:1138: weights are
  unpickled without limits (`pytorch_model.bin`, `model_state.pdparams`), so a stranger's file runs code.
- transformers/bert/modeling.py:231, roberta/modeling.py:244, electra/modeling.py:241: the conversion from
  the Hugging Face layout goes by `architectures` in config.json. Where that disagrees with the names
  in the file, the encoder stays random, or square matrices stay untransposed, with a warning at most.
- transformers/conversion_utils.py:1187: converting writes model_state.pdparams into the source folder,
  also into site-packages; a later, other conversion then reads this one.
- utils/serialization.py:167: a tensor's stride is ignored unless it is a plain transpose; files older
  than PyTorch 1.6 are not read at all.
- transformers/model_utils.py:2036: parameters that the file lacks are left random with a warning.

Test: tests/upstream/test_from_pretrained.py.
"""
