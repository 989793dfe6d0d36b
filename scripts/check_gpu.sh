#!/usr/bin/env bash
# For whoever has an NVIDIA card: installs nlpctl with its extra gpu, runs everything that docs/gpu.md lists, and writes one
# report, outputs/check_gpu/report.md and report.json. 15 minutes at most, beside the installation. A failure ends nothing.
#
#   bash scripts/check_gpu.sh
#   bash scripts/check_gpu.sh --torch-python VENV/bin/python   # a Python with PyTorch, to compare speeds with
#   bash scripts/check_gpu.sh --device cpu --epochs 1          # without a card: proves this script
#   NLPCTL_PYTHON=VENV/bin/python bash scripts/check_gpu.sh    # with this environment, as it is
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

if [ -z "${NLPCTL_PYTHON:-}" ]; then
    FOLDER=$(venv_of gpu)
    prepare "$FOLDER" gpu
    NLPCTL_PYTHON=$VENV/bin/python
fi
exec "$NLPCTL_PYTHON" "$ROOT/scripts/check_gpu.py" "$@"
