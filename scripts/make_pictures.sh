#!/usr/bin/env bash
# Makes the pictures of the READMEs, docs/images/*.png, from a finished run: its pages, and those that nlpctl makes of its
# data and of what it answers. It needs nlpctl, Chromium and a font with Chinese characters (apt-get install chromium
# fonts-noto-cjk). Half a minute, once the run is there:
#
#   nlpctl train recipes/quickstart/quickstart.yaml
#   nlpctl compress outputs/quickstart --strategy ort-dynamic,ptq --algo_list avg
#   nlpctl report outputs/quickstart
#   bash scripts/make_pictures.sh outputs/quickstart
#   bash scripts/make_pictures.sh outputs/quickstart data explain    # only these
#   bash scripts/make_pictures.sh outputs/sst2_minilm confidence     # that of docs/decisions.md, if it is named
set -euo pipefail

RUN=${1:-outputs/quickstart}
PICTURES=${*:2}
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
IMAGES=$ROOT/docs/images
PLACE=$(mktemp -d)
trap 'rm -rf "$PLACE"' EXIT
CHROMIUM=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
    { echo "error: there is no Chromium" >&2; echo "  -> apt-get install chromium fonts-noto-cjk" >&2; exit 1; }

wanted() { # PICTURE: whether it is one to make
    [[ -z "$PICTURES" || " $PICTURES " == *" $1 "* ]]
}

# PAGE PICTURE WIDTH HEIGHT: the top of a page. The height ends it where a section ends, the width between two columns.
picture() {
    [ -f "$1" ] || { echo "error: there is no $1" >&2; echo "  -> the commands at the top of $0 make it" >&2; exit 1; }
    # Not where this machine keeps them.
    sed -E 's#/[^<>" ]*/(outputs|recipes)/#\1/#g' "$1" >"$PLACE/page.html"
    "$CHROMIUM" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
        --disable-component-update --disable-sync --hide-scrollbars --user-data-dir="$PLACE/profile" \
        --window-size="$3,$4" --screenshot="$PLACE/$2.png" "file://$PLACE/page.html" 2>"$PLACE/log" ||
        { cat "$PLACE/log" >&2; exit 1; }
    mkdir -p "$IMAGES"
    mv "$PLACE/$2.png" "$IMAGES/$2.png"
    echo "$IMAGES/$2.png"
}

if wanted report; then
    picture "$RUN/report.html" report 1080 992
fi
if [[ " $PICTURES " == *" confidence "* ]]; then # the diagrams of one section
    sed -nE '1,/<body>/p' "$RUN/report.html" | sed -E 's#<body>.*#<body>#' >"$PLACE/confidence.html"
    sed -nE '/<h2>Confidence</,/<\/section>/p' "$RUN/report.html" >>"$PLACE/confidence.html"
    picture "$PLACE/confidence.html" confidence 1080 600
fi
if wanted compress; then
    picture "$RUN/compress/report.html" compress 1066 1224
fi
if wanted data; then
    nlpctl data inspect "$RUN/recipe.yaml" --html "$PLACE/data.html" >"$PLACE/log"
    picture "$PLACE/data.html" data 1080 1120
fi
if wanted explain; then
    { # the sentence of the README, and rows of test
        echo 虽然房间很小，但是位置很方便。
        sed -n '3,5p' "$ROOT/recipes/quickstart/test.tsv" | cut -f1
    } >"$PLACE/reviews.txt"
    nlpctl explain "$RUN" "$PLACE/reviews.txt" -o "$PLACE/explain.html" 2>"$PLACE/log"
    picture "$PLACE/explain.html" explain 1080 1035
fi
