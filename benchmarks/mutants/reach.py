"""Which tests can notice a fault: those that run its lines, those of the file's own name first and quick ones first."""

from __future__ import annotations

import ast
import bisect
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.mutants.mutator import Mutant


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What one test runs."""

    test: str
    """As pytest names it: ``tests/tpu/dump/test_hlo.py::test_a_name[1]``."""
    lines: Mapping[str, frozenset[int]]
    """Line numbers by file, in the process of the test: what a child of it runs is not known."""
    seconds: float
    """Of the processor, so that a busy machine does not change which tests are tried."""

    @property
    def file(self) -> str:
        return self.test.partition("::")[0]

    @classmethod
    def read(cls, tests: Mapping[str, Any]) -> tuple[Ran, ...]:
        """From what a ``Recorder`` noted."""
        return tuple(
            cls(
                test=test,
                lines={file: frozenset(lines) for file, lines in noted["lines"].items()},
                seconds=noted["seconds"],
            )
            for test, noted in tests.items()
        )


MOST_SECONDS = 40.0
"""What the tests of one fault may take of the processor on the sound tree: what they do not notice in that survives."""


def lines_of(source: str, mutant: Mutant) -> frozenset[int]:
    """The lines of the statement that a fault is in: of one with a body its head. None for what runs on import."""
    at = frozenset[int]()
    nodes: list[tuple[ast.AST, bool]] = [(ast.parse(source), False)]
    while nodes:
        node, within = nodes.pop()
        within = within or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt) and within and child.lineno <= mutant.line <= (child.end_lineno or 0):
                body = getattr(child, "body", None) or getattr(child, "cases", None)
                end = _first_line(body[0]) - 1 if body else child.end_lineno or child.lineno
                if mutant.line <= max(end, child.lineno):
                    at = frozenset(range(child.lineno, max(end, child.lineno) + 1))
            nodes.append((child, within))
    return at


def _first_line(node: ast.AST) -> int:
    return node.pattern.lineno if isinstance(node, ast.match_case) else getattr(node, "lineno", 1)


def ordered(ran: Sequence[Ran], source: str) -> tuple[str, ...]:
    """Tests in the order of trying: the file named after ``source`` first, then the quickest; quick tests first."""
    wanted = f"test_{Path(source).stem}"
    files: dict[str, list[float]] = {}
    for one in ran:
        files.setdefault(one.file, []).append(one.seconds)
    typical = {file: sorted(seconds)[len(seconds) // 2] for file, seconds in files.items()}

    def rank(one: Ran) -> tuple[bool, float, str, float]:
        return Path(one.file).stem != wanted, typical[one.file], one.file, one.seconds

    return tuple(one.test for one in sorted(ran, key=rank))


def choice(mutant: Mutant, source: str, ran: Sequence[Ran], *, children: bool) -> tuple[str, ...]:
    """The tests to try, in order, as many as there is time for; none where no test runs the line.

    A line that runs on import is everybody's in a file of tests of which one runs anything of the source. Where the
    code also runs in ``children`` of the tests, the other tests follow.
    """
    lines = lines_of(source, mutant)
    reaching = [one for one in ran if _reaches(one, mutant.file, lines)]
    if not lines:
        files = {one.file for one in reaching}
        reaching = [one for one in ran if one.file in files]
    first = ordered(reaching or ([] if lines else ran), mutant.file)
    rest = ordered([one for one in ran if one.test not in first], mutant.file) if children else ()
    seconds, tests = {one.test: one.seconds for one in ran}, (*first, *rest)
    return tests[: max(1, bisect.bisect(list(itertools.accumulate(map(seconds.__getitem__, tests))), MOST_SECONDS))]


def _reaches(one: Ran, file: str, lines: frozenset[int]) -> bool:
    run = one.lines.get(file, frozenset())
    return bool(run & lines if lines else run)
