"""Cheat 10: becomes another program, without the judge's patches and checks."""
# rejected as: IMPORT_FAILED
# kind: starts a program
# caught by: seccomp
# said: PermissionError
# wall: seccomp
# left out of: tests

import dataclasses

_os = dataclasses.sys.modules["os"]
_os.execv("/bin/sh", ["sh", "-c", "echo record.json; sleep 600"])
