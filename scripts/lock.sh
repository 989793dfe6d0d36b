#!/usr/bin/env bash
# Makes requirements-ci.txt anew from pyproject.toml: every package of the extras cpu and dev for Python 3.11 on Linux, with
# its version and hashes. Versions that are locked stay, unless something asks for others.
#
#   bash scripts/lock.sh            # after a change of pyproject.toml
#   bash scripts/lock.sh --upgrade  # newest versions; arguments go to `uv pip compile`
#
# To install just that:
#   pip install --require-hashes -r requirements-ci.txt && pip install --no-deps -e .
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
tool_venv lock uv==0.13.9
cd "$ROOT"
exec "$TOOLS/uv" pip compile pyproject.toml --extra cpu --extra dev --python-version 3.11 \
    --python-platform x86_64-manylinux_2_28 --generate-hashes --no-emit-index-url --no-annotate --quiet \
    --custom-compile-command "bash scripts/lock.sh" -o requirements-ci.txt "$@" >/dev/null
