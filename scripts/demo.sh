#!/usr/bin/env bash
# From a bare machine to a trained model: installs nlpctl, then trains, evaluates and predicts with the reviews of
# recipes/quickstart. No download but the packages. Run it again as often as you like.
#
#   bash scripts/demo.sh
#   NLPCTL_EXTRA=gpu bash scripts/demo.sh      # on a machine with an NVIDIA card, see docs/gpu.md
#   NLPCTL_EXTRA=paddle3 bash scripts/demo.sh  # with Paddle 3.1 in place of 2.6
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

EXTRA=${NLPCTL_EXTRA:-cpu}
DEVICE=cpu
[ "$EXTRA" != gpu ] || DEVICE=gpu
FOLDER=$(venv_of "$EXTRA")
prepare "$FOLDER" "$EXTRA"
cd "$ROOT"

step() {
    printf '\n$ nlpctl %s\n' "$*" >&2
    "$VENV/bin/nlpctl" "$@"
}

step train recipes/quickstart/quickstart.yaml --device "$DEVICE" --overwrite
step eval outputs/quickstart --device "$DEVICE"
step predict outputs/quickstart --device "$DEVICE" <<'SENTENCES'
虽然房间很小，但是位置很方便。
房间很干净，不过前台一点也不热情。
都说菜价很贵，其实挺实惠的。
SENTENCES
