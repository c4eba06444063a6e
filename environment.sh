# Sourced by ratchet.sh and test.sh with $root set: makes the private environment unless it is there and current.
# Leaves in $kept the variables that the judge may see: none that makes a program load other code; in $python the
# interpreter.
if [ -n "${LD_LIBRARY_PATH:-}" ]; then export RATCHET_LIBRARY_PATH=$LD_LIBRARY_PATH; fi
unset LD_PRELOAD LD_AUDIT LD_LIBRARY_PATH BASH_ENV ENV
kept=()
for name in HOME USER LOGNAME PATH LANG LC_ALL LC_CTYPE TZ TERM COLUMNS LINES NO_COLOR FORCE_COLOR TMPDIR EMAIL \
    XDG_CACHE_HOME XDG_CONFIG_HOME GIT_CONFIG_GLOBAL GIT_CONFIG_NOSYSTEM GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL \
    GIT_AUTHOR_DATE GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL GIT_COMMITTER_DATE CUDA_VISIBLE_DEVICES \
    RATCHET_LIBRARY_PATH PYTHONIOENCODING RATCHET_REFERENCES_GIB RATCHET_STANDBY_MINUTES; do
    if [ -n "${!name+set}" ]; then kept+=("$name=${!name}"); fi
done
if ! cmp -s -- "$root/requirements.lock" "$root/.venv/requirements.lock"; then
    tried=("${RATCHET_PYTHON:-python3}")
    if [ -z "${RATCHET_PYTHON:-}" ]; then tried+=(python3.13 python3.12 python3.11 python); fi
    for python in "${tried[@]}"; do
        if "$python" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then break; fi
        python=
    done
    if [ -z "$python" ]; then
        echo "no Python 3.11 or newer found (tried ${tried[*]}); install one or set RATCHET_PYTHON" >&2
        exit 69
    fi
    "$python" -I "$root/ratchet/process/boot/bootstrap.py" "$root"
fi
# Under its own name Python reads no pyvenv.cfg, and its standard library is the one beside it.
python=$(readlink -f -- "$root/.venv/bin/python")
case $python in
"$root"/*)
    echo "the interpreter of .venv is $python, inside the repository, where an author of kernels can edit it:" \
        "remove .venv and set RATCHET_PYTHON to another" >&2
    exit 69
    ;;
esac
