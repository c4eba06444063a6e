"""Cheat 19: writes another tolerance into the judge's own files."""
# rejected as: IMPORT_FAILED

import dataclasses

_os = dataclasses.sys.modules["os"]
_os.open(_os.environ["PYTHONPATH"] + "/ratchet/judge/parity.py", _os.O_WRONLY)  # and no further
