"""Cheat 41: its record says that it takes one input, and the program beside it takes three."""
# rejected as: PROBLEM_CHANGED
# kind: forged record
# caught by: frozen problem
# left out of: tests

import dataclasses

_modules = dataclasses.sys.modules

_json = _modules["json"]
_written = _json.dumps


def _forged(record, **options):
    if isinstance(record, dict) and "reference_sha256" in record:
        record = record | {"inputs": record["inputs"][:1]}
    return _written(record, **options)


_json.dumps = _forged
