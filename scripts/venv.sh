# Sourced by demo.sh and test.sh: finds a Python, makes a virtual environment, installs nlpctl into it.
# Needs Python 3.11 (3.10 and 3.12 are accepted; NLPCTL_PYTHON_VERSION=3.12 asks for one) and a network or a package
# mirror that pip knows.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

fail() { # MESSAGE HINT
    printf 'error: %s\n  -> %s\n' "$1" "$2" >&2
    exit 1
}

find_python() {
    local name names="python3.11 python3.12 python3.10 python3 python"
    for name in ${NLPCTL_PYTHON_VERSION:+python}${NLPCTL_PYTHON_VERSION:-$names}; do
        if "$name" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    return 1
}

# venv_of EXTRA: the folder of its environment; Paddle's packages cannot share one, nor can versions of Python.
venv_of() {
    local folder=$ROOT/.venv
    case $1 in
        cpu) ;;
        gpu | paddle3) folder=$folder-$1 ;;
        *) fail "NLPCTL_EXTRA is '$1'" "cpu, gpu or paddle3" ;;
    esac
    echo "$folder${NLPCTL_PYTHON_VERSION:+-$NLPCTL_PYTHON_VERSION}"
}

check_library() { # FILE PACKAGE
    "$PYTHON" -c "import ctypes; ctypes.CDLL('$1')" 2>/dev/null ||
        fail "Paddle needs $1, which this machine lacks" "apt-get install $2 (as root; or your system's package for it)"
}

run_logged() { # WHAT COMMAND...: quiet, unless it fails
    local what=$1 log=$VENV/install.log
    shift
    if ! "$@" >>"$log" 2>&1; then
        tail -n 30 "$log" >&2
        fail "$what failed" "the whole log: $log"
    fi
}

# prepare VENV EXTRAS [PACKAGE]: afterwards $VENV/bin has nlpctl with these extras, and PACKAGE without what it
# depends on. A second call does nothing until pyproject.toml changes.
prepare() {
    VENV=$1
    local extras=$2 package=${3:-} stamp wanted
    PYTHON=$(find_python) ||
        fail "no Python ${NLPCTL_PYTHON_VERSION:-3.10, 3.11 or 3.12} found" "apt-get install python3.11 python3.11-venv"
    check_library libgomp.so.1 libgomp1
    check_library libstdc++.so.6 libstdc++6
    stamp=$VENV/.installed-${extras//,/-}
    wanted="$ROOT $package $(cksum <"$ROOT/pyproject.toml")"
    if [ -x "$VENV/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
        return
    fi
    echo "Installing nlpctl[$extras] into $VENV (about 2 GB, with gpu 7; a minute or two) ..." >&2
    mkdir -p "$VENV"
    : >"$VENV/install.log"
    [ -x "$VENV/bin/pip" ] ||
        run_logged "python -m venv (on Debian and Ubuntu it needs the package python3-venv)" "$PYTHON" -m venv "$VENV"
    run_logged "pip install" "$VENV/bin/python" -m pip install --disable-pip-version-check -e "$ROOT[$extras]"
    [ -z "$package" ] ||
        run_logged "pip install $package" "$VENV/bin/python" -m pip install --disable-pip-version-check --no-deps "$package"
    printf '%s' "$wanted" >"$stamp"
}

# tool_venv NAME PACKAGES: afterwards $TOOLS is the bin of an environment of its own that has PACKAGES.
tool_venv() {
    VENV=$ROOT/.venv-tools/$1
    TOOLS=$VENV/bin
    if [ "$(cat "$VENV/.installed" 2>/dev/null)" = "$2" ]; then
        return
    fi
    PYTHON=$(find_python) || fail "no Python 3.10, 3.11 or 3.12 found" "apt-get install python3.11 python3.11-venv"
    mkdir -p "$VENV"
    : >"$VENV/install.log"
    run_logged "python -m venv (on Debian and Ubuntu it needs the package python3-venv)" "$PYTHON" -m venv "$VENV"
    run_logged "pip install $2" "$TOOLS/pip" install --disable-pip-version-check $2
    printf '%s' "$2" >"$VENV/.installed"
}
