"""Cheat 11: looks for the expected answer in the memory of the process that judges it."""
# rejected as: IMPORT_FAILED
# kind: reads outside of its jail
# caught by: landlock, seccomp, namespaces

import dataclasses

_os = dataclasses.sys.modules["os"]
_os.read(_os.open(f"/proc/{_os.getppid()}/mem", _os.O_RDONLY), 1)
