"""Cheat 29: leaves more files than anybody can clean up."""
# rejected as: IMPORT_FAILED
# kind: fills the disk
# caught by: namespaces
# left out of: tests
# said: No space left
# wall: namespaces

import dataclasses

_os = dataclasses.sys.modules["os"]
for _number in range(100_000):
    _os.close(_os.open(f"litter{_number}", _os.O_CREAT | _os.O_WRONLY))
