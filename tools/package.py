"""Builds wheel and sdist, compares them, and installs the wheel in an empty environment: ``python -m tools.package``.

The wheel that the sdist makes has to hold the same files as the one that the tree makes, to the byte. The tree is HEAD.
Needs uv; ``--offline`` takes setuptools from uv's cache.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ratchet.process.boot.bootstrap import find_uv
from tools.documents import ROOT

NOT_THE_SAME = ("RECORD",)
"""Files of a wheel that may differ between two builds."""


def build(folder: Path, *options: str) -> tuple[Path, Path, Path]:
    """The wheel of the tree, the sdist, and the wheel of the sdist. The tree stays as it is.

    Raises:
        CalledProcessError: a build failed; its ``stderr`` says why.
    """
    uv = str(find_uv(Path(sys.prefix)))
    copy = folder / "tree"
    subprocess.run(["git", "clone", "-q", ROOT, copy], check=True)
    _run(uv, "build", "-q", "--wheel", "--sdist", *options, "-o", str(folder / "tree-dist"), str(copy))
    (sdist,) = (folder / "tree-dist").glob("*.tar.gz")
    _run(uv, "build", "-q", "--wheel", *options, "-o", str(folder / "sdist-dist"), str(sdist))
    (first,), (second,) = ((folder / name).glob("*.whl") for name in ("tree-dist", "sdist-dist"))
    return first, sdist, second


def contents(wheel: Path) -> Mapping[str, bytes]:
    """The files of a wheel by name."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith(NOT_THE_SAME)]
        return {name: archive.read(name) for name in names}


def differences(first: Path, second: Path) -> list[str]:
    """The names of the files that are in one wheel alone, or not the same in both."""
    one, other = contents(first), contents(second)
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def install(wheel: Path, folder: Path) -> Path:
    """A new environment with the wheel and nothing else, as pip would have it; returns its ``ratchet``."""
    uv = str(find_uv(Path(sys.prefix)))
    _run(uv, "venv", "-q", "--python", sys.executable, str(folder))
    _run(uv, "pip", "install", "-q", "--offline", "--python", str(folder / "bin" / "python"), str(wheel))
    return folder / "bin" / "ratchet"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def main(given: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="ratchet-package-") as work:
        folder = Path(work)
        try:
            wheel, sdist, again = build(folder, *given)
            ratchet = install(wheel, folder / "environment")
        except subprocess.CalledProcessError as error:
            print(error.stderr, file=sys.stderr)
            return error.returncode
        done = subprocess.run([ratchet, "init", folder / "workspace"], check=False, capture_output=True, text=True)
        differing = differences(wheel, again)
        print(f"{wheel.name}: {len(contents(wheel))} files, {wheel.stat().st_size:,} bytes")
        print(f"{sdist.name}: {sdist.stat().st_size:,} bytes; its wheel differs in {', '.join(differing) or 'nothing'}")
        print(f"installed; `ratchet init` ended with {done.returncode}{done.stderr}")
        return int(bool(differing) or done.returncode != 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
