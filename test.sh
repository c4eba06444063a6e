#!/bin/bash -p
# The tests but the slow ones, in three processes: they wait for disks and children a third of the time. Arguments go to pytest: ./test.sh -m slow, ./test.sh tests/loop
set -eu
root=$(CDPATH= cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
. "$root/environment.sh"
cd "$root"
unset PYTHONDONTWRITEBYTECODE  # compiling is two thirds of what a process spends before its first test
exec "$root/.venv/bin/python" -m pytest -n "${TEST_PROCESSES:-3}" --dist worksteal "$@"
