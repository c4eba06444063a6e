"""Cheat 19: writes another tolerance into the judge's own files."""
# rejected as: IMPORT_FAILED
# kind: writes outside of its folder
# caught by: landlock
# said: PermissionError
# wall: landlock
# left out of: tests

import dataclasses

_os = dataclasses.sys.modules["os"]
_root = str(dataclasses.sys.modules["ratchet.process.sandbox.child"].PACKAGE_ROOT)
_os.open(_root + "/ratchet/exam/problem/parity.py", _os.O_WRONLY)  # and no further
