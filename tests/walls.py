"""Which walls of the jail this machine has no means for: a test that needs one of them is skipped there."""

import tempfile
from functools import cache
from pathlib import Path

import pytest

from ratchet.process.sandbox.child import Child


@cache
def missing() -> tuple[str, ...]:
    """The walls that a child here does without."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Child("tests.process.sandbox.hostile", directory=Path(folder, "probe")) as child,
    ):
        return child.missing


def needs(*walls: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(bool(lacking(*walls)), reason=lacking(*walls))


def lacking(*walls: str) -> str:
    """The reason to skip, or nothing."""
    gone = [wall for wall in walls if wall in missing()]
    return f"this system offers no {' and no '.join(gone)} to this user" if gone else ""
