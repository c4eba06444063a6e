"""The TARGET of a command line: which function, for which inputs and chips."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from ratchet import target as targets
from ratchet.child import Child
from ratchet.chips import CHIPS
from ratchet.compiler import compile as compiling
from ratchet.target import GENERATOR, Case, Target
from ratchet.values.status import Refusal, Status


def target_of(options: argparse.Namespace) -> tuple[Target, tuple[Case, ...]]:
    """The target and its cases, one for each chip that was asked for.

    Raises:
      Refusal: ``USAGE``, ``NOT_FOUND``.
    """
    target = targets.parse(options.target)
    if options.inputs is not None:
        if options.input:
            raise Refusal(Status.USAGE, "--input and --inputs say the same twice: give one of them")
        chosen = targets.cases(options.inputs)
        if options.case:
            chosen = tuple(case for case in chosen if case.name in options.case)
        missing = set(options.case or ()) - {case.name for case in chosen}
        if missing:
            raise Refusal(Status.NOT_FOUND, f"{options.inputs} has no case {sorted(missing)[0]!r:.60}")
    else:
        chosen = (targets.inline(options.input or [GENERATOR]),)
    if not options.chip:
        return target, chosen
    return target, tuple(replace(case, chip=chip) for case in chosen for chip in options.chip)


def title_of(target: Target, case: Case) -> str:
    """``pkg.kernels:fn [prefill]``."""
    return f"{target} [{case.name}]" if case.name else str(target)


@dataclass
class Compilers:
    """A compiler process for each chip that is asked for, kept until the end; a context manager."""

    folder: Path
    _children: dict[str, Child]
    _stack: ExitStack

    @classmethod
    def start(cls) -> Compilers:
        """With a folder of its own, which goes with it."""
        stack = ExitStack()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ratchet-")))
        return cls(folder=folder, _children={}, _stack=stack)

    def child(self, chip: str) -> Child:
        """The process of a chip, started when it is first needed, or anew where it died."""
        child = self._children.get(chip)
        if child is None or not child.alive:
            child = self._stack.enter_context(compiling.start(self.new_folder(), CHIPS[chip]))
            self._children[chip] = child
        return child

    def new_folder(self) -> Path:
        """An empty one."""
        return Path(tempfile.mkdtemp(dir=self.folder))

    def __enter__(self) -> Compilers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def numbered(cases: Sequence[Case]) -> Iterator[tuple[str, Case]]:
    """Cases, each with a name of a folder of its own."""
    for number, case in enumerate(cases):
        yield f"{number}-{case.name or 'case'}-{case.chip}", case
