"""Cheat 41: attaches to the process that started it."""
# rejected as: IMPORT_FAILED
# kind: forbidden system call
# caught by: seccomp
# wall: seccomp
# said: PermissionError
# left out of: tests

import dataclasses

_modules = dataclasses.sys.modules
_os, _ctypes = _modules["os"], _modules["ctypes"]
_libc = _ctypes.CDLL(None, use_errno=True)
if _libc.ptrace(16, _os.getppid(), 0, 0) < 0:
    raise OSError(_ctypes.get_errno(), _os.strerror(_ctypes.get_errno()))
