"""Cheat 41: makes itself the head of a session, beyond the reach of signals to its group."""
# rejected as: IMPORT_FAILED
# kind: forbidden system call
# caught by: seccomp
# wall: seccomp
# said: PermissionError
# left out of: tests

import dataclasses

dataclasses.sys.modules["os"].setsid()
