#!/bin/bash -p
# The tests but the slow ones, in four processes: on two cores they wait much of the time, for disks and children. Arguments go to pytest: ./test.sh -m slow, ./test.sh tests/loop
set -eu
root=$(CDPATH= cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
. "$root/environment.sh"
cd "$root"
unset PYTHONDONTWRITEBYTECODE  # compiling is two thirds of what a process spends before its first test
exec "$root/.venv/bin/python" -m pytest -n "${TEST_PROCESSES:-4}" --dist worksteal "$@"
