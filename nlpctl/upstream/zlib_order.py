"""Why `nlpctl/__init__.py` begins with `import zlib`.

paddlepaddle 2.6.2 (3.1.1 no longer), base/libpaddle.so: it exports zlib's symbols (19 names with `inflate`).
If Python's zlib is first loaded after Paddle, it binds to those, and compressing segfaults or decompression
fails with "zlib.error: Error -2". Python loads zlib late: zipfile, gzip, requests and safetensors downloads
bring it in. So it is bound first, by importing the package; there is nothing to call here.
Test: tests/upstream/test_zlib_order.py.
"""
