"""``init``, ``guides`` and ``completion``: what a user sets up once. Standard library, and shtab for completion."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ratchet.commands.options import ratchet_parser
from ratchet.process import paths
from ratchet.process.boot import home
from ratchet.process.root import Root
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


def init_options(parser: argparse.ArgumentParser) -> None:
    """A folder, and the kernel to begin with."""
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), metavar="DIR", help="default: this one")
    parser.add_argument(
        "--from",
        dest="example",
        default="first",
        metavar="EXAMPLE",
        help="the kernel to begin with; default first, a small softmax",
    )


def init_command(options: argparse.Namespace) -> int:
    """Write the files that are not there yet, and say what was written, what was left alone, and what to do next."""
    folder: Path = options.folder.resolve()
    kernel = _example(options.example)
    try:
        paths.make_folder(folder)
    except NotADirectoryError:
        raise Refusal(Status.USAGE, f"{folder} is a file or below one, wanted a folder") from None
    top, new = _top(folder)
    written = []
    for path, text in _files(folder, top, kernel).items():
        shown = path.relative_to(top)
        try:
            paths.make_folder(path.parent)
            Root(top).create(path, text.encode())
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
    protocol = paths.read(home.FILES / "program.md").decode()
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
    have = paths.read(path).decode(errors="replace").splitlines()
    lines = [line for line in text.splitlines() if line not in have and not line.startswith("#")]
    return f"; it lacks {', '.join(lines)}" if lines else ""


def _example(name: str) -> str:
    known = {path.stem: path for path in (*paths.files(home.FILES / "examples"), home.FILES / "kernel.py")}
    if name not in known:
        message = f"there is no example {name!r:.60}, wanted one of {', '.join(sorted(known))}"
        raise Refusal(Status.NOT_FOUND, message)
    return paths.read(known[name]).decode()


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


# --- guides ---

PROTOCOL = "program.md"
AGENTS = "AGENTS.md"
SKILL = "skills/pallas-ratchet/SKILL.md"
MADE = "<!-- Made from program.md by `{program} guides`: edit that one. -->"
DESCRIPTION = (
    "Makes a Pallas TPU kernel faster by experiments, without a TPU. Each edit is compiled by the real TPU compiler, "
    "checked for its values, modelled, and kept as a commit if it is faster. Use it to optimise, judge or explain a "
    "Pallas TPU kernel in this repository."
)
_SHORT = ("You can", "You cannot", "One turn")
"""Sections of the protocol that AGENTS.md repeats."""


def guides(protocol: str, *, program: str) -> Mapping[str, str]:
    """The texts of the files by path, of the protocol's text; ``program`` is what a user types.

    Raises:
        ValueError: the protocol lacks a section that AGENTS.md repeats.
    """
    made = MADE.format(program=program)
    title, opening, sections = _sections(protocol)
    missing = [name for name in _SHORT if name not in sections]
    if missing:
        raise ValueError(f"the protocol has no section {missing[0]!r}, wanted {', '.join(_SHORT)}")
    parts = [
        "# For agents",
        made,
        opening,
        f"`{PROTOCOL}` is the whole protocol: what comes back, exit codes, how to read the evidence, a worked example.",
        *(f"## {name}\n\n{sections[name]}" for name in _SHORT),
    ]
    front = f"---\nname: pallas-ratchet\ndescription: {DESCRIPTION}\n---"
    whole = [front, made, f"# {title}", opening, *(f"## {name}\n\n{text}" for name, text in sections.items())]
    return {AGENTS: "\n\n".join(parts) + "\n", SKILL: "\n\n".join(whole) + "\n"}


def _sections(protocol: str) -> tuple[str, str, Mapping[str, str]]:
    """Title, what is before the first section, and the sections by name."""
    before, *rest = protocol.split("\n## ")
    title, _, opening = before.partition("\n")
    named = (one.partition("\n") for one in rest)
    return title.removeprefix("# ").strip(), opening.strip(), {name.strip(): text.strip() for name, _, text in named}


def guides_command(*, root: Path) -> int:
    """Write them again, beside the protocol, and say which changed."""
    try:
        protocol = paths.read(root / PROTOCOL).decode()
        files = guides(protocol, program=home.PROGRAM)
    except FileNotFoundError:
        todo = f"`{home.PROGRAM} init` lays out a workspace"
        raise Refusal(Status.NOT_FOUND, f"there is no {PROTOCOL} in {root}: {todo}") from None
    except ValueError as error:
        raise Refusal(Status.USAGE, f"{PROTOCOL}: {error}") from None
    for name, text in files.items():
        path = root / name
        before = paths.read(path).decode() if paths.is_file(path) else None
        if before != text:
            paths.make_folder(path.parent)
            paths.write(path, text.encode())
        print(f"{name}: {'as it was' if before == text else 'written'}")
    return Status.PASS.exit_code


# --- completion ---

_NAMES = ("ratchet", "ratchet.sh")
"""What the command line is called: installed, and in a clone."""


def completion_options(parser: argparse.ArgumentParser) -> None:
    """A shell."""
    parser.add_argument("shell", choices=("bash", "zsh"))


def completion_command(options: argparse.Namespace) -> int:
    """Print a script for the shell; the shell completes ``./ratchet.sh`` by its last part."""
    print(completion(options.shell), end="")
    return Status.PASS.exit_code


def completion(shell: str) -> str:
    """Completion of commands, options, their choices and files, for ``bash`` or ``zsh``."""
    import shtab

    parser = ratchet_parser()
    _describe(parser)
    parser.prog = "ratchet"
    text: str = shtab.complete(parser, shell=shell, root_prefix="ratchet")
    if shell == "bash":
        return (
            text.rstrip("\n")
            + "\n"
            + "\n".join(f"complete -o filenames -F _shtab_ratchet {name}" for name in _NAMES)
            + "\n"
        )
    both = " ".join(_NAMES)
    text = text.replace("#compdef ratchet\n", f"#compdef {both}\n")
    return text.replace("compdef _shtab_ratchet -N ratchet\n", f"compdef _shtab_ratchet {both}\n").rstrip("\n") + "\n"


def _describe(parser: argparse.ArgumentParser) -> None:
    """Tell shtab which values are files or folders."""
    import shtab

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                _describe(below)
        elif action.type is Path:
            action.complete = shtab.DIRECTORY if action.metavar == "DIR" else shtab.FILE  # type: ignore[attr-defined]
