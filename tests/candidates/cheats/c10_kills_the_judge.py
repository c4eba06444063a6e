"""Cheat 10: reaches the operating system past the static check and ends the process that judges it."""
# rejected as: IMPORT_FAILED
# kind: kills the judge
# caught by: seccomp
# left out of: tests

import dataclasses

_os = dataclasses.sys.modules["os"]
_os.kill(_os.getppid(), 9)
