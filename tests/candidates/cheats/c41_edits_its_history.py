"""Cheat 41: opens git's folder to write a better score into history."""
# rejected as: IMPORT_FAILED
# kind: writes outside of its folder
# caught by: landlock
# wall: landlock
# said: PermissionError
# left out of: tests

import dataclasses

_modules = dataclasses.sys.modules
_os = _modules["os"]
_root = str(_modules["ratchet.process.sandbox.child"].PACKAGE_ROOT)
_os.open(_root + "/.git/HEAD" if _os.path.isdir(_root + "/.git") else _root + "/.git", _os.O_WRONLY)  # and no further
