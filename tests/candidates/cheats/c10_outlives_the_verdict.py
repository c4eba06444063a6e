"""Cheat 10: leaves a process in a session of its own, to act when nobody looks."""
# rejected as: IMPORT_FAILED
# kind: outlives the verdict
# caught by: seccomp
# said: PermissionError
# wall: seccomp

import dataclasses

_os = dataclasses.sys.modules["os"]
if not _os.fork():
    _os.setsid()
    dataclasses.sys.modules["time"].sleep(600)
    _os._exit(0)
