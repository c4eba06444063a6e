#!/bin/bash -p
# The tests but the slow ones, on two processes. Arguments go to pytest: ./test.sh -m slow, ./test.sh tests/loop
set -eu
root=$(CDPATH= cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
. "$root/environment.sh"
cd "$root"
exec "$root/.venv/bin/python" -m pytest -n "${TEST_PROCESSES:-2}" --dist worksteal "$@"
