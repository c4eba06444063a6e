"""Cheat 19: writes another tolerance into the judge's own files."""
# rejected as: IMPORT_FAILED

import dataclasses

_os = dataclasses.sys.modules["os"]
_file = _os.open(_os.environ["PYTHONPATH"] + "/ratchet/judge/parity.py", _os.O_WRONLY | _os.O_APPEND)
_os.write(_file, b"ROW = ELEMENT = WHOLE = 1e9\n")
