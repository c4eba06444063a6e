"""Cheat 28: leaves a link to a file of the user's in the place of its record, which a row would quote."""
# rejected as: IMPORT_FAILED
# kind: link or pipe for a record
# caught by: landlock
# said: PermissionError
# wall: landlock
# left out of: tests

import dataclasses

_os = dataclasses.sys.modules["os"]
_os.symlink("/etc/passwd", "record.json")
