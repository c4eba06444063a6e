"""Skips the tests of a file where an optional package is missing, without importing it to find out."""

from importlib.util import find_spec

import pytest


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [name for name in packages if find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not in this environment: {', '.join(missing)}")
