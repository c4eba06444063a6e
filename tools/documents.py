"""The documents as data: their pages, fenced blocks, inline code and links. Reads text, runs nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOP = ("README.md", "program.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_FENCE = re.compile(r"^( *)(`{3,})([^`]*)$")
_TITLE = re.compile(r'\btitle="([^"]*)"')
_CODE = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
_LINK = re.compile(r"(?<!\\)\]\(([^()\s]+(?:\([^()\s]*\))?[^()\s]*)\)")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block."""

    page: str
    """The page's path from the root of the repository."""
    line: int
    """Of its opening fence, from 1 on."""
    language: str
    """The first word behind the fence; ``""`` where there is none."""
    title: str
    """What ``title="…"`` behind the fence says."""
    text: str


def pages() -> list[str]:
    """Every document, as paths from the root: those of the top folder, then docs/ by name."""
    return [*TOP, *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, text: str) -> list[Block]:
    """The fenced blocks of a page, in order.

    Raises:
        ValueError: a fence is never closed.
    """
    blocks: list[Block] = []
    opened: tuple[int, str, str] | None = None
    body: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        fence = _FENCE.match(line)
        if opened is None and fence:
            opened, body = (number, fence[2], fence[3]), []
        elif opened is not None and fence and fence[2].startswith(opened[1]) and not fence[3].strip():
            words, title = opened[2].split(), _TITLE.search(opened[2])
            blocks.append(
                Block(
                    page=page,
                    line=opened[0],
                    language=words[0] if words else "",
                    title=title[1] if title else "",
                    text="\n".join(body) + "\n",
                )
            )
            opened = None
        else:
            body.append(line)
    if opened is not None:
        raise ValueError(f"{page}:{opened[0]}: the block is never closed")
    return blocks


def prose(text: str) -> str:
    """The page without its fenced blocks: as many lines, those of blocks empty."""
    lines = text.splitlines()
    for block in blocks("", text):
        end = block.line + len(block.text.splitlines()) + 1
        lines[block.line - 1 : end] = [""] * (end - block.line + 1)
    return "".join(line + "\n" for line in lines)


def inline_code(text: str) -> list[str]:
    """What is between single backticks outside of blocks; a line end inside is a space."""
    return [" ".join(match[1].split()) for match in _CODE.finditer(prose(text))]


def links(text: str) -> list[str]:
    """The targets of all links outside of blocks and code, in order."""
    return [match[1] for match in _LINK.finditer(_CODE.sub("", prose(text)))]


def with_links(text: str, replaced: dict[str, str]) -> str:
    """The page with the targets of links exchanged, outside of blocks."""
    plain = prose(text).splitlines()

    def one(line: str) -> str:
        return _LINK.sub(lambda match: f"]({replaced.get(match[1], match[1])})", line)

    pairs = zip(text.splitlines(), plain, strict=True)
    return "\n".join(one(line) if line == outside else line for line, outside in pairs) + "\n"


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them of plain words."""
    heads = [line.lstrip("#").strip() for line in prose(text).splitlines() if re.match(r"#{1,6} ", line)]
    return set(map(_anchor, heads))


def _anchor(head: str) -> str:
    return re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", head.lower()).strip())


def everything() -> Iterator[tuple[str, str]]:
    """Each page with its text."""
    for page in pages():
        yield page, read(page)
