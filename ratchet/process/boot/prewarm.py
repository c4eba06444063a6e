"""What the first verdict of a new environment would wait for: the code of its packages compiled, and read for the seal.

``start.py prewarm`` runs it, once the environment is made.
"""

from __future__ import annotations

from pathlib import Path

from ratchet.process.boot import bytecode, children, installed


def main() -> int:
    """Do both, one beside the other; what fails is done by whoever needs it."""
    folders = children.packages()
    for folder in folders:
        installed.begin(Path(folder))
    bytecode.fill(folders)
    for folder in folders:
        installed.digest(Path(folder))
    return 0
