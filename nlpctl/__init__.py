"""nlpctl: train, evaluate and ship PaddleNLP models from one recipe."""

# libpaddle exports its own zlib symbols. Unless Python's zlib is bound first, decompression later
# fails with "zlib.error: Error -2". So this import stays first; see nlpctl/upstream/zlib_order.py.
import zlib  # noqa: F401

__version__ = "0.1.0"
