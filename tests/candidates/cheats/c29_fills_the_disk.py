"""Cheat 29: makes a file as large as it can, in the one folder that it may write to."""
# rejected as: IMPORT_FAILED
# kind: fills the disk
# caught by: file size

import dataclasses

_os = dataclasses.sys.modules["os"]
_os.ftruncate(_os.open("large", _os.O_CREAT | _os.O_WRONLY), 1 << 40)
