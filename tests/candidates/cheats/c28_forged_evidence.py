"""Cheat 28: writes evidence of its own beside the judge's."""
# rejected as: IMPORT_FAILED

import dataclasses

_os = dataclasses.sys.modules["os"]
_os.mkdir(_os.environ["PYTHONPATH"] + "/hlo_dumps/forged")
