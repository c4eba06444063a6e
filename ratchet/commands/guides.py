"""``ratchet guides``: the files that agents look for, made of the protocol. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ratchet.process.boot import home
from ratchet.values.status import Refusal, Status

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
    title, opening, sections = _parts(protocol)
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


def _parts(protocol: str) -> tuple[str, str, Mapping[str, str]]:
    """Title, what is before the first section, and the sections by name."""
    before, *rest = protocol.split("\n## ")
    title, _, opening = before.partition("\n")
    named = (one.partition("\n") for one in rest)
    return title.removeprefix("# ").strip(), opening.strip(), {name.strip(): text.strip() for name, _, text in named}


def command(*, root: Path) -> int:
    """Write them anew beside the protocol, and say which changed."""
    try:
        protocol = (root / PROTOCOL).read_text(encoding="utf-8")
        files = guides(protocol, program=home.PROGRAM)
    except FileNotFoundError:
        todo = f"`{home.PROGRAM} init` lays out a workspace"
        raise Refusal(Status.NOT_FOUND, f"there is no {PROTOCOL} in {root}: {todo}") from None
    except ValueError as error:
        raise Refusal(Status.USAGE, f"{PROTOCOL}: {error}") from None
    for name, text in files.items():
        path = root / name
        before = path.read_text(encoding="utf-8") if path.is_file() else None
        if before != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        print(f"{name}: {'as it was' if before == text else 'written'}")
    return Status.PASS.exit_code
