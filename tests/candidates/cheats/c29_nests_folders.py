"""Cheat 29: leaves folders in folders, deeper than any clean-up can follow."""
# rejected as: IMPORT_FAILED
# kind: fills the disk
# caught by: namespaces
# left out of: tests
# said: No space left
# wall: namespaces

import dataclasses

_os = dataclasses.sys.modules["os"]
for _ in range(5000):
    _os.mkdir("deeper")
    _os.chdir("deeper")
