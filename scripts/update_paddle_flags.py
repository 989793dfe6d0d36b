"""Write nlpctl/config/data/paddle_flags-RELEASE.json: the FLAGS_* that the installed Paddle knows, with their types.

    python scripts/update_paddle_flags.py

Run it once with paddlepaddle installed (rewrites `flags` and `python_flags`), then once with
paddlepaddle-gpu (rewrites `gpu_flags`; its wheel imports on a machine without a card). Where there is no GPU build of a
release to install, `gpu_flags` are those of the release before.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import nlpctl  # noqa: F401  (zlib before paddle)
from nlpctl.paddle_version import release

DATA = Path(__file__).resolve().parent.parent / "nlpctl/config/data"
READ_FROM_ENVIRONMENT = re.compile(r"""(?:getenv\(|environ\.get\(|environ\[)\s*['"](FLAGS_\w*[a-zA-Z])['"]""")


def exported_flags() -> dict[str, str]:
    """Flags of the compiled library: name to type."""
    import paddle

    registry = paddle.base.core.globals()
    return {name: type(registry.get(name)).__name__ for name in sorted(registry.keys())}


def python_flags() -> list[str]:
    """Flags that only Paddle's Python code reads, straight from the environment."""
    import paddle

    texts = (path.read_text(encoding="utf-8") for path in Path(paddle.__file__).parent.rglob("*.py"))
    return sorted({name for text in texts for name in READ_FROM_ENVIRONMENT.findall(text)} - exported_flags().keys())


def main() -> None:
    import paddle

    file = DATA / f"paddle_flags-{release()[0]}.{release()[1]}.json"
    before = file if file.is_file() else max(DATA.glob("paddle_flags-*.json"))
    known = json.loads(before.read_text(encoding="utf-8"))
    known["paddle"] = paddle.__version__
    if paddle.is_compiled_with_cuda():
        known["gpu_flags"] = {name: kind for name, kind in exported_flags().items() if name not in known["flags"]}
    else:
        known["flags"] = exported_flags()
        known["gpu_flags"] = {name: kind for name, kind in known["gpu_flags"].items() if name not in known["flags"]}
        known["python_flags"] = python_flags()
    file.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
