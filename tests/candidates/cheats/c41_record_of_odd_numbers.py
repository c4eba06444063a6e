"""Cheat 41: its record has NaN, negative sizes and truth values where numbers belong."""
# rejected as: CONTRACT
# kind: forged record
# caught by: typed symbols
# left out of: tests

import dataclasses

_modules = dataclasses.sys.modules

_json = _modules["json"]
_written = _json.dumps


def _forged(record, **options):
    if isinstance(record, dict) and "reference_sha256" in record:
        record = record | {"flops": True, "outputs": [{"shape": [-1, 128], "dtype": "bfloat16"}]}
    return _written(record, **options)


_json.dumps = _forged
