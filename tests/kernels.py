"""Kernel files for tests: the honest ones, and edits of them. Every edit has to find what it replaces."""

from pathlib import Path

from ratchet.process.sandbox.child import PACKAGE_ROOT
from ratchet.selftest import corpus

CANDIDATES = Path(__file__).parent / "candidates"
HONEST = {name: one.source for name, one in corpus.read(PACKAGE_ROOT).honest.items() if one.on == corpus.MODEL}
"""Whole files by name: an honest kernel may be a few lines behind another one."""
ATTENTION, LAYERNORM = HONEST["attention"], HONEST["layernorm"]


def edited(source: str, *edits: tuple[str, str]) -> str:
    """``source`` with each (old, new) replaced."""
    for old, new in edits:
        assert old in source, f"nothing to replace: {old!r}"
        source = source.replace(old, new)
    return source
