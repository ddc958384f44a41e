#!/usr/bin/env bash
# Sourced by train.sh and test.sh: makes .venv where it is missing and installs the requirement files given, once.
# PYTHON chooses the interpreter (>= 3.11). TORCH_INDEX_URL chooses where torch, and torch alone, comes from.
set -euo pipefail

setup() {
    local root=$1 python=${PYTHON:-python3} file stamp
    shift
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        echo "NAVRL needs Python 3.11 or newer; $python is $("$python" --version 2>&1). Choose one with PYTHON=..." >&2
        return 2
    fi
    if [ ! -x "$root/.venv/bin/python" ]; then
        echo "making $root/.venv"
        "$python" -m venv "$root/.venv" || {
            echo "cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2
            return 2
        }
    fi
    for file in "$@"; do
        stamp="$root/.venv/installed-$(sha256sum "$root/$file" | cut -c1-16)-$file"
        [ -e "$stamp" ] && continue
        echo "installing $file"
        if [ -n "${TORCH_INDEX_URL:-}" ] && grep -q '^torch==' "$root/$file"; then
            "$root/.venv/bin/pip" install --quiet --disable-pip-version-check \
                --index-url "$TORCH_INDEX_URL" "$(grep '^torch==' "$root/$file")"
        fi
        "$root/.venv/bin/pip" install --quiet --disable-pip-version-check -r "$root/$file"
        touch "$stamp"
    done
}
