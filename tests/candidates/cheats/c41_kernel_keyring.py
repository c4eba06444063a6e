"""Cheat 41: leaves a note for its next verdict in a key of the kernel, which outlives its process."""
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
if _libc.syscall(248, b"user", b"note", b"seen", 4, -4) < 0:
    raise OSError(_ctypes.get_errno(), _os.strerror(_ctypes.get_errno()))
