"""What `pip install nlpctl` leaves out: the extra that brings a package, and the message of what needs it."""

from __future__ import annotations

import importlib.util

from nlpctl.errors import UserError

# By the names under which packages are imported; "train" is what the extras cpu, gpu and paddle3 bring alike.
_PACKAGES = {
    "train": """
        paddle paddlenlp paddleslim paddle2onnx onnx pandas datasets sklearn cleanlab visualdl jieba safetensors
        """,
    "parquet": "pyarrow",
    "cluster": "ray fsspec",
    "sweep": "optuna",
    "mlflow": "mlflow",
}
EXTRA_OF = {name: extra for extra, names in _PACKAGES.items() for name in names.split()}
_CALLED = {"paddle": "Paddle", "paddlenlp": "PaddleNLP", "ray": "Ray", "optuna": "Optuna", "visualdl": "VisualDL"}


def is_installed(package: str) -> bool:
    """Whether `package` can be found by import, without importing it."""
    return importlib.util.find_spec(package) is not None


def install(package: str) -> str:
    """The command that brings `package`, a name that is imported."""
    extra = EXTRA_OF.get(package)
    if extra == "train":
        return "pip install 'nlpctl[cpu]' (with an NVIDIA card nlpctl[gpu], with Paddle 3.1 nlpctl[paddle3])"
    return f"pip install 'nlpctl[{extra}]'" if extra else f"pip install {package}"


def not_installed(package: str, where: str = "", otherwise: str = "") -> UserError:
    """The error of what needs `package`. `otherwise`: what else the user can do."""
    hint = install(package) + (f", or {otherwise}" if otherwise else "")
    return UserError(f"{_CALLED.get(package, package)} is not installed", where, hint)


def require(package: str, where: str = "", otherwise: str = "") -> None:
    """UserError, as `not_installed`, unless `package` can be imported."""
    if not is_installed(package):
        raise not_installed(package, where, otherwise)


def require_onnx(where: str = "", otherwise: str = "") -> None:
    """UserError if packages for ONNX graphs are missing.

    `where`: the key or flag that asks for these graphs, if one does. `otherwise`: the alternative to installing them.
    """
    missing = [package for package in ("paddle2onnx", "onnx") if not is_installed(package)]
    if missing:
        hint = install(missing[0]) + (f", or {otherwise}" if otherwise else "")
        raise UserError(f"{' and '.join(missing)} not installed", where, hint)


def of_extra(error: ImportError) -> UserError | None:
    """The message for an import that failed since an extra is not installed; None for any other failure."""
    package = (error.name or "").partition(".")[0]
    return not_installed(package) if package in EXTRA_OF and not is_installed(package) else None
