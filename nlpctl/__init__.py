"""nlpctl: train, evaluate and ship PaddleNLP models from one recipe.

    model = nlpctl.load("outputs/quickstart")
    model.predict(["..."])

The names below are public, and docs/python.md explains them; every other module may change without notice.
Import nlpctl before Paddle. Nothing heavy is imported until `load` or `train` is called.
"""

# libpaddle exports its own zlib symbols. Unless Python's zlib is bound first, decompression later
# fails with "zlib.error: Error -2". So this import stays first; see nlpctl/upstream/__init__.py.
import zlib  # noqa: F401
from typing import TYPE_CHECKING, Any

from nlpctl.paddle_version import keep_old_format

if TYPE_CHECKING:
    from nlpctl.api import Export, Model, Run, load, train
    from nlpctl.errors import RunFailed, UserError

keep_old_format()
__version__ = "0.2.0"
__all__ = ["Export", "Model", "Run", "RunFailed", "UserError", "__version__", "load", "train"]

_HOMES = {"RunFailed": "nlpctl.errors", "UserError": "nlpctl.errors"}


def __getattr__(name: str) -> Any:
    """A public name, imported when it is first asked for: the command line starts without them."""
    if name not in __all__:
        raise AttributeError(f"module 'nlpctl' has no attribute {name!r}")
    import importlib

    value = vars(importlib.import_module(_HOMES.get(name, "nlpctl.api")))[name]
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
