#!/usr/bin/env bash
# Builds the site of docs/ into site/ (English) and site/zh-CN/ (Chinese), and checks it. A link that leads nowhere, a page
# that loads something from elsewhere, and a search index without the words of the pages end it with exit code 1.
#
#   bash scripts/build_site.sh
#   python3 -m http.server -d site     # http://localhost:8000; the search needs a server
#
# The packages of the extra `docs` go into .venv-docs (60 MB) once; pip needs a network or a mirror for that. The build
# itself has none, where the machine allows to take it away.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
cd "$ROOT"

VENV=${NLPCTL_DOCS_VENV:-$ROOT/.venv-docs}
PYTHON=$(find_python) || fail "no Python 3.10, 3.11 or 3.12 found" "apt-get install python3.11 python3.11-venv"
wanted=$(sed -n '/^docs = \[/,/^\]/s/^ *"\([^"]*\)".*/\1/p' pyproject.toml)
if [ "$(cat "$VENV/.installed" 2>/dev/null)" != "$wanted" ]; then
    mkdir -p "$VENV"
    : >"$VENV/install.log"
    run_logged "python -m venv (on Debian and Ubuntu it needs the package python3-venv)" "$PYTHON" -m venv "$VENV"
    # shellcheck disable=SC2086 # one word per package
    run_logged "pip install" "$VENV/bin/python" -m pip install --disable-pip-version-check $wanted
    printf '%s' "$wanted" >"$VENV/.installed"
fi

export NO_MKDOCS_2_WARNING=1
without_network=""
if unshare -rn true 2>/dev/null; then
    without_network="unshare -rn"
fi
: >"$VENV/install.log"
for config in mkdocs.yml mkdocs.zh-CN.yml; do # the English build empties site/, so it comes first
    # Not with --quiet: strict mode would no longer see the warnings.
    run_logged "mkdocs build" $without_network "$VENV/bin/python" -m mkdocs build --strict --config-file "$config"
done
"$VENV/bin/python" scripts/site/check.py site
