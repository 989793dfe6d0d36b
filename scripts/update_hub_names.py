"""Write nlpctl/config/data/hub_names.json from the installed PaddleNLP. Run it after changing the PaddleNLP pin.

python scripts/update_hub_names.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import nlpctl  # noqa: E402, F401  (binds zlib before paddle is imported)


def main() -> None:
    import paddlenlp

    from nlpctl.config.hub_names import FILE
    from nlpctl.models.families import known_hub_names

    content = {"paddlenlp": paddlenlp.__version__, "names": known_hub_names()}
    FILE.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written: {FILE}")


if __name__ == "__main__":
    main()
