"""A ratcheted kernel file -> a module of a package: what stands above the line of judging, under a header of its row.

The bytes come from git, as they were judged, and the header from the row that judged them first: exporting again gives
the same bytes, whatever happened to the work tree or to later rows.
"""

from __future__ import annotations

import ast
from pathlib import Path

from ratchet.candidate.contract import SYMBOLS
from ratchet.loop import log
from ratchet.loop.history import History
from ratchet.values import Row
from ratchet.values.status import Refusal, Status

LINE = "# ---- judged at one shape by what follows; an export ends here ----"
"""Parts a kernel file: above it the kernel for any shape, below it the seven symbols."""
WIDTH = 116


def export(root: Path, kernel: str, *, draft: bool = False) -> bytes:
    """The module made of the kernel file ``kernel``, a path relative to the repository at ``root``.

    With ``draft``, of what HEAD has although no row judged it; its header says so.

    Raises:
        Refusal: NOT_FOUND if no kept row judged what HEAD has, CONTRACT if the file cannot be parted, SYNTAX_ERROR.
    """
    history = History(root)
    entry = history.entry(history.head().commit, kernel)
    if entry is None:
        raise Refusal(Status.NOT_FOUND, f"HEAD has no file {kernel}: commit it, and judge it with --kernel {kernel}")
    judged = [
        row
        for row in log.rows(root)
        if (row.kernel, row.kernel_blob) == (kernel, entry.blob) and row.score and row.decision in ("kept", "baseline")
    ]
    if not judged and not draft:
        message = (
            f'no row of the ledger has HEAD\'s {kernel}: judge it first, ./ratchet.sh --kernel {kernel} "baseline"'
        )
        raise Refusal(Status.NOT_FOUND, message)
    try:
        source = history.blob(entry.blob).decode()
    except UnicodeDecodeError as error:
        raise Refusal(Status.SYNTAX_ERROR, f"{kernel} is not UTF-8 ({error.reason} at byte {error.start})") from None
    return module(source, kernel, judged[0] if judged else None).encode()


def module(source: str, kernel: str, row: Row | None) -> str:
    """The text of the module. Pure.

    Raises:
        Refusal: CONTRACT, SYNTAX_ERROR.
    """
    above, line, _ = source.partition(f"\n{LINE}\n")
    if not line:
        raise Refusal(Status.CONTRACT, f"{kernel} has no line {LINE!r}: put it above the seven symbols")
    try:
        tree = ast.parse(above)
    except (SyntaxError, ValueError) as error:
        where = f"{kernel}:{getattr(error, 'lineno', None) or 1}"
        raise Refusal(Status.SYNTAX_ERROR, f"{where}: {getattr(error, 'msg', None) or error}") from None
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if inside := sorted(names & SYMBOLS.keys()):
        raise Refusal(
            Status.CONTRACT, f"{kernel} uses {', '.join(inside)} above its line of judging: the export ends there"
        )
    return header(kernel, row) + above.rstrip("\n") + "\n"


def header(kernel: str, row: Row | None) -> str:
    """Where a module comes from, as comments; ``row`` is None for one that was not judged."""
    lines = [f"Made by `./ratchet.sh export` from {kernel}: edit that, not this."]
    if row is None:
        lines.append("A draft: no row of the ledger has judged it.")
    else:
        lines += [
            f"commit     {row.commit}",
            f"score      {row.score} ({row.median_ms} ms, {row.util_pct} % of the roofline)",
            f"evaluator  {row.evaluator}, {row.chip}, {row.compiler}",
            f"problem    {row.problem}",
        ]
    return "".join(f"# {line}"[:WIDTH] + "\n" for line in lines)
