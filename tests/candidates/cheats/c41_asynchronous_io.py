"""Cheat 41: opens the ring through which system calls go that no filter sees."""
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
if _libc.syscall(425, 4, _ctypes.create_string_buffer(120)) < 0:
    raise OSError(_ctypes.get_errno(), _os.strerror(_ctypes.get_errno()))
