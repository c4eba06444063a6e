"""Cheat 11: looks for the judge's secret and its cached answers on the disk."""
# rejected as: IMPORT_FAILED
# kind: reads outside of its jail
# caught by: landlock
# said: PermissionError
# wall: landlock

import dataclasses

_os = dataclasses.sys.modules["os"]
_root = str(dataclasses.sys.modules["ratchet.process.sandbox.child"].PACKAGE_ROOT)
_names = _os.listdir(_root)
