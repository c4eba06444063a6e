"""What MkDocs is given beside docs/: pages from the top folder, reference made from the code, linked source files."""

from __future__ import annotations

import contextlib
import io
import os
import posixpath
import re
from typing import Any

from mkdocs.structure.files import File, Files

from ratchet.commands import options
from ratchet.selftest.defences import DEFENCES
from ratchet.values.status import Status
from tools import operations, records
from tools.documents import ROOT, links, read, with_links

PAGES = {
    "protocol.md": "program.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "security.md": "SECURITY.md",
}
"""Pages of the site that are files of the top folder."""
_ROLE = re.compile(r":(?:func|class|meth):(?=<code>)")
SOURCES = "source"
"""Folder of the site with the files of the repository that pages link to."""


def on_files(files: Files, *, config: Any) -> Files:
    """Adds the pages of ``PAGES``, and a copy of every other file of the repository that a page links to."""
    for name, origin in PAGES.items():
        files.append(File.generated(config, name, content=read(origin)))
    for file in [*files.documentation_pages()]:
        for target in links(file.content_string):
            path = _outside(file.src_uri, target)
            name = _copy(path)
            if name and not files.get_file_from_path(name):
                files.append(File.generated(config, name, content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Turns links to files of the repository into links of the site, and markers into what the code says."""
    here = page.file.src_uri
    text = with_links(markdown, {target: _in_site(here, target) for target in links(markdown)})
    for marker, made in MADE.items():
        if marker in text:
            text = text.replace(marker, made())
    return text


def on_page_content(html: str, *, page: Any, config: Any, files: Files) -> str:
    """Takes the roles of Sphinx out of docstrings, which MkDocs would print."""
    return _ROLE.sub("", html)


def commands() -> str:
    """The help of every command, as Markdown."""
    return "\n".join(f"## {name}\n\n```text\n{help_of(name)}```\n" for name in names())


def statuses() -> str:
    """Every status with its exit code and meaning, as a table."""
    rows = (f"| {one.exit_code} | `{one.name}` | {one.meaning} |" for one in sorted(Status, key=lambda s: s.exit_code))
    return "\n".join(["| code | status | meaning |", "|--:|---|---|", *rows])


def defences() -> str:
    """Every defence of the self-test, the step of a verdict that it is in, and the statuses it refuses with."""
    rows = (
        f"| {one.name} | {one.what} | {one.step} | {', '.join(f'`{status.name}`' for status in one.statuses)} |"
        for one in DEFENCES
    )
    return "\n".join(["| defence | what it keeps | step | refuses as |", "|---|---|---|---|", *rows])


def names() -> list[str]:
    """The commands of ``./ratchet.sh``, in alphabetical order."""
    return sorted(options.COMMANDS)


def help_of(name: str) -> str:
    """What ``./ratchet.sh NAME --help`` prints, 100 characters wide."""
    output = io.StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"
    try:
        with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
            options.ratchet([name, "--help"])
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
    return output.getvalue()


MADE = {
    "<!-- the help of every command -->": commands,
    "<!-- the statuses -->": statuses,
    "<!-- the defences -->": defences,
    "<!-- the operations -->": operations.markdown,
    "<!-- the records -->": records.markdown,
}
"""What the site puts in place of a marker of a page."""


def _outside(here: str, target: str) -> str:
    """The path from the root of the file that a link of page ``here`` leads to, or "" where docs/ has it."""
    path, _, _ = target.partition("#")
    if not path or ":" in path:
        return ""
    whole = posixpath.normpath(posixpath.join("" if here in PAGES else "docs", path))
    return "" if whole.startswith("docs/") else whole


def _in_site(here: str, target: str) -> str:
    """A link of page ``here`` as the site has it; one that leads nowhere stays, for MkDocs to warn of."""
    path, mark, anchor = target.partition("#")
    if here in PAGES and path.startswith("docs/"):
        return path.removeprefix("docs/") + mark + anchor
    outside = _outside(here, target)
    pages = {origin: name for name, origin in PAGES.items()} | {"README.md": "index.md"}
    name = pages.get(outside) or _copy(outside)
    return name + mark + anchor if name else target


def _copy(path: str) -> str:
    """Where the site has a file of the repository, as text, which a browser shows; "" for a page or no file."""
    if not path or path in PAGES.values() or path == "README.md" or not (ROOT / path).is_file():
        return ""
    return f"{SOURCES}/{path}.txt"
