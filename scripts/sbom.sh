#!/usr/bin/env bash
# Writes a bill of materials (SBOM, CycloneDX 1.6 as JSON): what requirements-ci.txt installs, with versions and hashes.
#
#   bash scripts/sbom.sh                  # build/sbom.json
#   bash scripts/sbom.sh -o outputs/sbom.json
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
OUTPUT=$ROOT/build/sbom.json
case $#-${1:-} in
    0-) ;;
    2--o) OUTPUT=$2 ;;
    *) fail "unknown arguments: $*" "bash scripts/sbom.sh [-o FILE]" ;;
esac
tool_venv sbom cyclonedx-bom==7.5.0
mkdir -p "$(dirname "$OUTPUT")"
STAGED=$(mktemp "$(dirname "$OUTPUT")/.staging-sbom-XXXXXXXX")
trap 'rm -f "$STAGED"' EXIT
# It warns that a list of packages does not tell which of them needs which.
PYTHONWARNINGS=ignore "$TOOLS/cyclonedx-py" requirements "$ROOT/requirements-ci.txt" --pyproject "$ROOT/pyproject.toml" \
    --spec-version 1.6 --output-reproducible --of JSON -o "$STAGED"
chmod 644 "$STAGED"
mv "$STAGED" "$OUTPUT"
echo "$OUTPUT"
