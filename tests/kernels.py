"""Kernel files for tests: the honest ones, and edits of them. Every edit has to find what it replaces."""

from pathlib import Path

CANDIDATES = Path(__file__).parent / "candidates"
ATTENTION = (CANDIDATES / "honest" / "attention.py").read_text()
LAYERNORM = (CANDIDATES / "honest" / "layernorm.py").read_text()


def edited(source: str, *edits: tuple[str, str]) -> str:
    """``source`` with each (old, new) replaced."""
    for old, new in edits:
        assert old in source, f"nothing to replace: {old!r}"
        source = source.replace(old, new)
    return source
