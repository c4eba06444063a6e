"""A child that imports nothing heavy: what it takes is what starting a child takes."""

from __future__ import annotations

from pathlib import Path

from ratchet.process.sandbox.child import serve


def handle(request: Path) -> str:
    """The answer is the request."""
    return str(request)


if __name__ == "__main__":
    serve(handle)
