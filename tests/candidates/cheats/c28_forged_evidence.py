"""Cheat 28: writes evidence of its own beside the judge's."""
# rejected as: IMPORT_FAILED
# kind: writes outside of its folder
# caught by: landlock
# said: PermissionError
# wall: landlock
# left out of: tests

import dataclasses

_os = dataclasses.sys.modules["os"]
_root = str(dataclasses.sys.modules["ratchet.process.sandbox.child"].PACKAGE_ROOT)
_os.open(_root, _os.O_TMPFILE | _os.O_WRONLY)  # a file without a name, for this tree's sake
