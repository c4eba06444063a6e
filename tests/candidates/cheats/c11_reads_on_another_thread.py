"""Cheat 11: reads the judge's files in a signal handler, on a thread that was there before the jail."""
# rejected as: IMPORT_FAILED
# said: PermissionError
# wall: landlock

import dataclasses

_os = dataclasses.sys.modules["os"]
_ctypes = dataclasses.sys.modules["ctypes"]
_libc = _ctypes.CDLL(None)
_file = str(dataclasses.sys.modules["ratchet.child"].PACKAGE_ROOT / "requirements.lock")
_errors = []


@_ctypes.CFUNCTYPE(None, _ctypes.c_int)
def _handler(_):
    try:
        _os.open(_file, _os.O_RDONLY)
    except OSError as error:
        _errors.append(error)


_threads = _os.listdir("/proc/self/task")
_libc.signal(10, _handler)
for _thread in _threads:
    _libc.syscall(234, _os.getpid(), int(_thread), 10)
    for _ in range(1000):
        _os.sched_yield()
    _os.stat("/")
for _error in _errors:
    if len(_errors) >= len(_threads):
        raise _error
