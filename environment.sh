# Sourced by ratchet.sh and test.sh with $root set: makes the private environment unless it is there and current.
if ! cmp -s -- "$root/requirements.lock" "$root/.venv/requirements.lock"; then
    tried=("${RATCHET_PYTHON:-python3}")
    if [ -z "${RATCHET_PYTHON:-}" ]; then tried+=(python3.13 python3.12 python3.11 python); fi
    for python in "${tried[@]}"; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then break; fi
        python=
    done
    if [ -z "$python" ]; then
        echo "no Python 3.11 or newer found (tried ${tried[*]}); install one or set RATCHET_PYTHON" >&2
        exit 69
    fi
    "$python" "$root/ratchet/bootstrap.py" "$root"
fi
