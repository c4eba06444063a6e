"""Cheat 11: reads the judge's files in a signal handler, on a thread that was there before the jail."""
# rejected as: IMPORT_FAILED
# kind: reads outside of its jail
# caught by: landlock
# said: PermissionError
# wall: landlock
# left out of: tests

import dataclasses

_os = dataclasses.sys.modules["os"]
_time = dataclasses.sys.modules["time"]
_ctypes = dataclasses.sys.modules["ctypes"]
_libc = _ctypes.CDLL(None)
_file = str(dataclasses.sys.modules["ratchet.process.sandbox.child"].PACKAGE_ROOT / "requirements.lock")
_errors = []
_opened = []


@_ctypes.CFUNCTYPE(None, _ctypes.c_int)
def _handler(_):
    try:
        _opened.append(_os.open(_file, _os.O_RDONLY))
    except OSError as error:
        _errors.append(error)


_libc.signal(10, _handler)
for _thread in _os.listdir("/proc/self/task"):
    _count = len(_errors) + len(_opened)
    _libc.syscall(234, _os.getpid(), int(_thread), 10)
    _deadline = _time.monotonic() + 1
    while len(_errors) + len(_opened) == _count and _time.monotonic() < _deadline:
        _time.sleep(0.001)
if not _opened:
    raise _errors[0]
