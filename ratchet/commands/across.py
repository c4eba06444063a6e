"""``./ratchet.sh across FILE``"""

from __future__ import annotations

import argparse
from pathlib import Path

from ratchet.values.status import Refusal, Status
from ratchet.view.document import dumps
from ratchet.view.streams import Progress
from ratchet.view.verdicts import across_document, across_table
from ratchet.wiring import JudgeFunction, across


def command(options: argparse.Namespace, *, root: Path, kernel: Path, function: JudgeFunction) -> int:
    """Judge a kernel on every chip and print a line for each. The first that does not pass decides the exit code."""
    if not kernel.is_file():
        raise Refusal(Status.NOT_FOUND, f"there is no file {options.file}: name a kernel file")
    name = kernel.relative_to(root) if kernel.is_relative_to(root) else kernel
    with Progress() as progress:
        verdicts = across(kernel, root=root, kernel_rel=name.as_posix(), function=function, progress=progress)
    outcome = next((verdict.status for verdict in verdicts if verdict.status is not Status.PASS), Status.PASS)
    if options.json:
        print(dumps(across_document(verdicts, outcome)))
    else:
        print(across_table(verdicts))
    return outcome.exit_code
