"""``ratchet init``: lays out a workspace. Standard library only; never changes a file that is there."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ratchet.commands.guides import guides
from ratchet.process.boot import home
from ratchet.values.status import Refusal, Status

IGNORED = """\
__pycache__/
.venv/
/hlo_dumps/
/profile_data/
/report.html
/gallery/
"""
ATTRIBUTES = """\
# Hashed byte for byte: no line-ending conversion on any machine.
results.tsv -text
*.lock.json -text
"""
INSTEAD = (
    (".venv/bin/python prepare.py", "ratchet judge kernel.py"),
    (".venv/bin/xprof", "xprof"),
    ("./ratchet.sh", "ratchet"),
)
"""What the protocol says of a clone, and what it says of a workspace."""
_NO_REPOSITORY = "not a git repository"
"""What git says outside of every repository."""


def command(options: argparse.Namespace) -> int:
    """Write the files that are not there yet, and say what was written, what was left alone, and what to do next."""
    folder: Path = options.folder.resolve()
    kernel = _example(options.example)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise Refusal(Status.USAGE, f"{folder} is a file or below one, wanted a folder") from None
    top, new = _top(folder)
    written = []
    for path, text in _files(folder, top, kernel).items():
        shown = path.relative_to(top)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
            written.append(shlex.quote(os.path.relpath(path, folder)))
            print(f"wrote {shown}")
        except FileExistsError:
            print(f"left {shown} alone: it is there already{_missing(path, text)}")
    print(f"Next, in {folder}:")
    if written:
        print(f'  git add {"-A" if new else " ".join(written)} && git commit -m "workspace"')
    print(f'  {home.PROGRAM} "baseline"')
    return Status.PASS.exit_code


def _files(folder: Path, top: Path, kernel: str) -> Mapping[Path, str]:
    protocol = (home.FILES / "program.md").read_text(encoding="utf-8")
    for said, instead in INSTEAD:
        protocol = protocol.replace(said, instead)
    return {
        folder / "kernel.py": kernel,
        folder / "program.md": protocol,
        **{folder / name: text for name, text in guides(protocol, program=home.PROGRAM).items()},
        top / ".gitignore": IGNORED,
        top / ".gitattributes": ATTRIBUTES,
    }


def _missing(path: Path, text: str) -> str:
    """Which lines of ours a file of git's rules lacks."""
    if path.name not in (".gitignore", ".gitattributes"):
        return ""
    have = path.read_text(errors="replace").splitlines()
    lines = [line for line in text.splitlines() if line not in have and not line.startswith("#")]
    return f"; it lacks {', '.join(lines)}" if lines else ""


def _example(name: str) -> str:
    known = {path.stem: path for path in (*home.FILES.glob("examples/*.py"), home.FILES / "kernel.py")}
    if name not in known:
        message = f"there is no example {name!r:.60}, wanted one of {', '.join(sorted(known))}"
        raise Refusal(Status.NOT_FOUND, message)
    return known[name].read_text(encoding="utf-8")


def _top(folder: Path) -> tuple[Path, bool]:
    """The top of the repository that holds ``folder``, and whether it is a new one, made where there was none."""
    top = _git(folder, "rev-parse", "--show-toplevel")
    if not top.returncode:
        return Path(top.stdout.removesuffix("\n")).resolve(), False
    if _NO_REPOSITORY not in top.stderr:
        said = " ".join(top.stderr.split()).removeprefix("fatal: ")
        raise Refusal(Status.NOT_A_REPOSITORY, f"{folder} is in no work tree that git opens: {said:.200}")
    made = _git(folder, "init", "-q", "-b", "main")
    if made.returncode:
        raise Refusal(Status.NOT_A_REPOSITORY, f"git init failed: {made.stderr.strip():.200}")
    print(f"made a repository in {folder}")
    return folder, True


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env={**os.environ, "LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise Refusal(Status.INFRASTRUCTURE, "there is no git on the PATH: install it") from None
