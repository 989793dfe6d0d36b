#!/usr/bin/env bash
# Makes the pictures of the READMEs, docs/images/*.png, from the pages of a finished run. It needs Chromium and a font
# with Chinese characters (apt-get install chromium fonts-noto-cjk). Seconds, once the run is there:
#
#   nlpctl train recipes/quickstart/quickstart.yaml
#   nlpctl compress outputs/quickstart --strategy ort-dynamic,ptq,dynabert+ptq
#   nlpctl report outputs/quickstart
#   bash scripts/make_pictures.sh outputs/quickstart
set -euo pipefail

RUN=${1:-outputs/quickstart}
IMAGES=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/docs/images
PLACE=$(mktemp -d)
trap 'rm -rf "$PLACE"' EXIT
CHROMIUM=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
    { echo "error: there is no Chromium" >&2; echo "  -> apt-get install chromium fonts-noto-cjk" >&2; exit 1; }

# PAGE PICTURE WIDTH HEIGHT: the top of a page. The height ends it where a section ends, the width between two columns.
picture() {
    [ -f "$RUN/$1" ] || { echo "error: there is no $RUN/$1" >&2; echo "  -> the commands at the top of $0 make it" >&2; exit 1; }
    sed -E 's#/[^<>" ]*/outputs/#outputs/#g' "$RUN/$1" >"$PLACE/page.html" # not where this machine keeps them
    "$CHROMIUM" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
        --disable-component-update --disable-sync --hide-scrollbars --user-data-dir="$PLACE/profile" \
        --window-size="$3,$4" --screenshot="$PLACE/$2" "file://$PLACE/page.html" 2>"$PLACE/log" ||
        { cat "$PLACE/log" >&2; exit 1; }
    mkdir -p "$IMAGES"
    mv "$PLACE/$2" "$IMAGES/$2"
    echo "$IMAGES/$2"
}

picture report.html report.png 1080 1260
picture compress/report.html compress.png 1066 1260
