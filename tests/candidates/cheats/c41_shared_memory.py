"""Cheat 41: leaves a note in System V memory, which outlives its process."""
# rejected as: IMPORT_FAILED
# kind: outlives the verdict
# caught by: seccomp
# wall: seccomp
# said: PermissionError
# left out of: tests

import dataclasses

_modules = dataclasses.sys.modules
_os, _ctypes = _modules["os"], _modules["ctypes"]
_libc = _ctypes.CDLL(None, use_errno=True)
if _libc.shmget(0x5EED, 4096, 0o1600) < 0:
    raise OSError(_ctypes.get_errno(), _os.strerror(_ctypes.get_errno()))
