#!/usr/bin/env bash
# Does what is published work where no checkout is? Builds sdist and wheel, installs the wheel into a fresh virtual
# environment, and trains, scores and asks the quickstart from another folder. Two to three minutes.
#
#   bash scripts/check_wheel.sh
#   NLPCTL_PYTHON=/elsewhere/bin/python bash scripts/check_wheel.sh    # not .venv, which scripts/test.sh makes
#
# Paddle is not downloaded again: the fresh environment sees the packages of NLPCTL_PYTHON, but not its nlpctl.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BASE=${NLPCTL_PYTHON:-$ROOT/.venv/bin/python}
[ -x "$BASE" ] || { echo "error: there is no $BASE" >&2; echo "  -> bash scripts/test.sh makes it; or set NLPCTL_PYTHON" >&2; exit 1; }
PLACE=$(mktemp -d)
trap 'rm -rf "$PLACE"' EXIT
unset PYTHONPATH

step() {
    printf '\n$ %s\n' "$*"
    "$@"
}

step "$BASE" -m venv "$PLACE/venv"
PYTHON=$PLACE/venv/bin/python
# The wheel is built from the sdist, as those build it who install from source.
step "$PYTHON" -m pip install --quiet --disable-pip-version-check build
step "$PYTHON" -m build --outdir "$PLACE/dist" "$ROOT"

"$PYTHON" - "$("$BASE" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" <<'PTH'
import sys, sysconfig
from pathlib import Path

# A path without site.addsitedir: the .pth files there, the editable nlpctl among them, are not read.
Path(sysconfig.get_path("purelib"), "packages.pth").write_text(sys.argv[1] + "\n")
PTH
step "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --ignore-installed "$PLACE"/dist/*.whl

cd "$PLACE"
"$PYTHON" - "$PLACE/venv" <<'WHERE'
import sys
import nlpctl

assert nlpctl.__file__.startswith(sys.argv[1]), nlpctl.__file__
print(f"nlpctl {nlpctl.__version__} from {nlpctl.__file__}")
WHERE
step venv/bin/nlpctl recipe ls
step venv/bin/nlpctl recipe copy quickstart mine
step venv/bin/nlpctl train mine/quickstart.yaml --device cpu --max_steps 20
step venv/bin/nlpctl train quickstart --device cpu --max_steps 2 --output_dir outputs/by_name
step venv/bin/nlpctl eval outputs/quickstart --device cpu
echo 虽然房间很小，但是位置很方便。 | step venv/bin/nlpctl predict outputs/quickstart --device cpu
step "$PYTHON" -c 'import nlpctl; print(nlpctl.load("outputs/quickstart").predict("房间很干净。"))'
printf '\nthe wheel works\n'
