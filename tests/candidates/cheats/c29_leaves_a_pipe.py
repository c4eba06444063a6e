"""Cheat 29: leaves a pipe in the place of its record, on which the judge would wait for ever."""
# rejected as: IMPORT_FAILED
# kind: link or pipe for a record
# caught by: landlock
# said: PermissionError
# wall: landlock
# left out of: tests

import dataclasses

_os = dataclasses.sys.modules["os"]
_os.mkfifo("record.json")
for _channel in range(1, 64):
    try:
        _os.write(_channel, b"record.json\n")
    except OSError:
        pass
_os._exit(0)
