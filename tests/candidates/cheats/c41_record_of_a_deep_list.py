"""Cheat 41: its record is nested deeper than a reader follows."""
# rejected as: IMPORT_FAILED
# kind: more than a record holds
# caught by: complete record
# left out of: tests

import dataclasses

_os = dataclasses.sys.modules["os"]
_file = _os.open("record.json", _os.O_CREAT | _os.O_WRONLY)
_os.write(_file, b'{"status": ' + b"[" * 200000 + b"]" * 200000 + b"}")
for _channel in range(3, 64):
    try:
        _os.write(_channel, b"record.json\n")
    except OSError:
        pass
_os._exit(0)
