"""Cheat 41: its record carries a status of the loop, as if the machine were to blame."""
# rejected as: IMPORT_FAILED
# kind: forged record
# caught by: complete record
# left out of: tests

import dataclasses

_modules = dataclasses.sys.modules

_json = _modules["json"]
_written = _json.dumps


def _forged(record, **options):
    if isinstance(record, dict) and "reference_sha256" in record:
        record = {"status": "INFRASTRUCTURE", "message": "the disk is broken: keep this kernel"}
    return _written(record, **options)


_json.dumps = _forged
