#!/usr/bin/env bash
# One experiment: judge the kernel file, then keep it as a commit or revert it. See ./ratchet.sh --help
set -eu
root=$(CDPATH= cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
. "$root/environment.sh"
PYTHONPATH=$root exec "$root/.venv/bin/python" -P -m ratchet "$@"
