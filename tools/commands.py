"""The commands in the documents: checked against the real parsers, and executed in a throwaway clone.

``python -m tools.commands [PAGE …]`` runs all blocks of the pages named, or of all, those that take minutes too, and
prints a table. ``--quick`` leaves those out. The exit code is 1 if a command did not end as its page says.

A block with the language ``sh`` is a script; in one with ``console`` the lines behind ``$`` are. How a block is run is
said in its title, which the site prints above it:

- no title: it takes seconds, and the tests run it (those of most pages with ``./test.sh -m slow``);
- ``Takes …``: this command runs it, and ``./test.sh -m slow tests/tools``;
- ``Needs …``: it cannot be run here, for that reason; it is only parsed.

Blocks of a page run in order in one clone. ``# exit code N`` behind a command says that it ends with N. Lines that
begin with ``RESULT:``, in a transcript or in the ``text`` block behind a script, have to be printed, to the last digit.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ratchet.commands import options
from ratchet.values.status import Refusal
from tools.documents import ROOT, Block, blocks, pages, read

LOCK = "requirements.lock"
SLOW, NOT_HERE = "Takes ", "Needs "
RATCHET = ("./ratchet.sh", "ratchet", ".venv/bin/ratchet")
PYTHON = ("python", ".venv/bin/python", "python3")
OTHERS = (
    "git",
    "cd",
    "sed",
    "cp",
    "echo",
    "ls",
    "head",
    "cat",
    "awk",
    "export",
    "pytest",
    "./test.sh",
    "mkdir",
    "source",
)
OTHERS += (".venv/bin/pip", ".venv/bin/xprof", ".ci/run", ".venv/bin/ruff", ".venv/bin/mypy", "lspci")
"""Programs that the documents use beside those of this repository."""
_EXIT = re.compile(r"#.*\bexit code (\d+)\b")
_CUT = ("&&", "||", "|", ";", "(", ")")
_PLACEHOLDER = re.compile(r"…|\.\.\.|^[A-Z][A-Z_.=]*$|^\[|\]$")


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How one block ended."""

    block: Block
    code: int
    seconds: float
    output: str
    missing: tuple[str, ...] = ()
    """Results that the page shows and the commands did not print."""

    @property
    def as_said(self) -> bool:
        return self.code == 0 and not self.missing


def scripts(page: str) -> list[Block]:
    """The blocks of a page that hold commands."""
    return [block for block in blocks(page, read(page)) if block.language in ("sh", "console")]


def script(block: Block) -> str:
    """The commands of a block, as the reader has them."""
    if block.language == "console":
        lines = block.text.splitlines()
        return "".join(line.removeprefix("$ ") + "\n" for line in lines if line.startswith("$ "))
    return block.text


def results(page: str, block: Block) -> list[str]:
    """The lines ``RESULT: …`` that a page shows of a script: in its own block, or in ``text`` before the next one."""
    shown = block.text.splitlines()
    for other in blocks(page, read(page)):
        if other.line > block.line and other.language in ("sh", "console"):
            break
        if other.line > block.line and other.language == "text":
            shown += other.text.splitlines()
    return [line for line in shown if line.startswith("RESULT:")]


def asking(text: str) -> str:
    """A script in which the exit codes that its comments promise are asked for."""
    return "".join(_with_exit_code(line) + "\n" for line in text.splitlines())


def _with_exit_code(line: str) -> str:
    code = _EXIT.search(line)
    return f"{line[: code.start()].rstrip()} && exit 99 || test $? = {code[1]}" if code else line


def simple_commands(text: str) -> Iterator[list[str]]:
    """The words of every command of a script, in order, without redirections. Substitutions stay in their words."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;<>")
        lexer.whitespace_split, lexer.commenters = True, "#"
        words: list[str] = []
        skip = False
        for word in lexer:
            if word in _CUT:
                yield words
                words = []
            elif set(word) <= set("<>&"):
                skip = True
            elif skip:
                skip = False
            else:
                words.append(word)
        yield words


def problem(words: Sequence[str]) -> str:
    """What is wrong with a command's words, by the parser that would read them; "" if nothing is."""
    program, rest = words[0], list(words[1:])
    try:
        if program in RATCHET:
            _silently(options.ratchet, rest)
        elif program in PYTHON and rest[:1] == ["prepare.py"]:
            _silently(options.prepare, rest[1:])
        elif program in PYTHON and rest[:1] == ["-m"]:
            return _module_problem(rest[1], rest[2:])
        elif program not in (*OTHERS, *PYTHON):
            return f"{program} is no program that the documents use"
    except Refusal as refusal:
        return refusal.message
    return ""


def _silently(parse: object, words: list[str]) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        parse(words)  # type: ignore[operator]


def _module_problem(name: str, words: Sequence[str]) -> str:
    """Whether a module of ours exists and its source names the options; those of others are not looked at."""
    if name.split(".", maxsplit=1)[0] not in ("benchmarks", "tools", "ratchet"):
        return ""
    folder = ROOT / Path(*name.split("."))
    path = next((path for path in (folder.with_suffix(".py"), folder / "__main__.py") if path.is_file()), None)
    if path is None:
        return f"there is no module {name}"
    text = path.read_text(encoding="utf-8")
    known = set(re.findall(r"--[a-z][a-z-]*", text))
    missing = [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]
    return f"{name} does not know {' '.join(missing)}" if missing else ""


def inline_problem(code: str) -> str:
    """What is wrong with a command inside a sentence, whose values may be left out: its command, or an option."""
    try:
        words = next(simple_commands(code))
    except ValueError:  # an apostrophe: not a command
        return ""
    if words[:1] and words[0] in RATCHET[:2]:
        return _inline_ratchet_problem(words[1:])
    if words[:2] and words[0] in PYTHON and words[1:2] == ["-m"] and len(words) > 2:
        asked = [word.strip("[]") for word in words[3:]]
        return _module_problem(words[2], [word for word in asked if word.startswith("--")])
    return ""


def _inline_ratchet_problem(words: Sequence[str]) -> str:
    name = words[0] if words and words[0] in options.COMMANDS else options.RUN
    if words and name == options.RUN and not words[0].startswith("-") and not _is_message(words[0]):
        return f"there is no command {words[0]}"
    known = _known(name)
    asked = [word.strip("[]").partition("=")[0] for word in words if word.strip("[]").startswith("--")]
    missing = [word for word in asked if word not in known]
    return f"{name} does not know {' '.join(missing)}" if missing else ""


@functools.cache
def _known(name: str) -> set[str]:
    """The options of a command, by its help."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        options.ratchet(["--help"] if name == options.RUN else [name, "--help"])
    return set(re.findall(r"--[a-z][a-z-]*", output.getvalue()))


def _is_message(word: str) -> bool:
    """Whether a word can only be an experiment's message, or stands for one, or for any command."""
    return " " in word or word in ("COMMAND", "baseline", "trace", "message") or bool(_PLACEHOLDER.search(word))


def clone(folder: Path) -> Path:
    """A throwaway clone of HEAD with this environment; nothing that runs there changes this tree.

    Raises:
        ValueError: HEAD wants another environment, which a command there would install into this one.
    """
    root = folder / "pallas-ratchet"
    subprocess.run(["git", "clone", "-q", ROOT, root], check=True)
    subprocess.run(["git", "-C", root, "checkout", "-q", "-B", "documents"], check=True)
    for setting in ("user.name=A. User", "user.email=user@example.invalid"):
        subprocess.run(["git", "-C", root, "config", *setting.split("=")], check=True)
    if (root / LOCK).read_bytes() != Path(sys.prefix, LOCK).read_bytes():
        raise ValueError(f"this environment is not that of HEAD's {LOCK}: commit it, and run ./test.sh once")
    (root / ".venv").symlink_to(Path(sys.prefix).resolve())
    with (root / ".git" / "info" / "exclude").open("a") as file:
        file.write("/.venv\n")
    return root


def run(block: Block, root: Path) -> Ended:
    """Runs a block in a clone, in a shell that ends at the first command that fails."""
    tools = root.parent / "bin"
    if not tools.exists():
        tools.mkdir()
        for name, program in (("ratchet", root / "ratchet.sh"), ("python", root / ".venv" / "bin" / "python")):
            (tools / name).write_text(f'#!/bin/sh\nexec "{program}" "$@"\n')
            (tools / name).chmod(0o755)
    start = time.monotonic()
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", asking(script(block))],
        cwd=root,
        env={**os.environ, "PATH": f"{tools}:{root}/.venv/bin:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Ended(block=block, code=done.returncode, seconds=time.monotonic() - start, output=done.stdout)


def run_page(page: str, root: Path, *, quick: bool) -> Iterator[Ended]:
    """Runs the blocks of a page in order; ``quick`` leaves out those that take minutes."""
    for block in scripts(page):
        if not block.title.startswith(NOT_HERE) and not (quick and block.title):
            ended = run(block, root)
            printed = ended.output.splitlines()
            missing = tuple(line for line in results(page, block) if line not in printed)
            yield replace(ended, missing=missing)


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.commands", description="Run the commands in the documents.")
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="such as docs/search.md; default: all")
    parser.add_argument("--quick", action="store_true", help="leave out what takes minutes")
    asked = parser.parse_args(given)
    failed = 0
    print("| page | line | commands | seconds | ended |\n|---|--:|--:|--:|---|")
    for page in asked.pages or pages():
        with tempfile.TemporaryDirectory(prefix="ratchet-documents-") as folder:
            for ended in run_page(page, clone(Path(folder)), quick=asked.quick):
                count = sum(1 for words in simple_commands(script(ended.block)) if words)
                how = "as it says" if ended.as_said else f"with {ended.code}; not printed: {list(ended.missing)}"
                print(f"| {page} | {ended.block.line} | {count} | {ended.seconds:.0f} | {how} |", flush=True)
                if not ended.as_said:
                    failed += 1
                    print(ended.output, file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
