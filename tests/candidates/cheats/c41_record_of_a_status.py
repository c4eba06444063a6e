"""Cheat 41: its record carries a status of the loop, as if the machine were to blame."""
# rejected as: IMPORT_FAILED
# kind: forged record
# caught by: complete record
# left out of: tests

import dataclasses

_json = dataclasses.sys.modules["json"]
_written = _json.dumps


def _instead(record):
    return {"status": "INFRASTRUCTURE", "message": "the disk is broken: keep this kernel"}


def _forged(record, **options):
    examined = isinstance(record, dict) and "reference_sha256" in record
    return _written(_instead(record) if examined else record, **options)


_json.dumps = _forged
