"""The TARGET of a command line: which function, for which inputs and chips."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from ratchet.exam.candidate import target as targets
from ratchet.exam.candidate.source_closure import SourceClosure
from ratchet.exam.candidate.target import GENERATOR, Case, Target
from ratchet.kernelfile.knobs import Knob, knobs
from ratchet.process.sandbox.child import Child
from ratchet.tpu.chips import CHIPS
from ratchet.tpu.compiler import compile as compiling
from ratchet.values import Explanation
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


def folder_for(file: Path) -> None:
    """Make the folder that ``file`` will be written to, before minutes go by.

    Raises:
      Refusal: ``USAGE`` where there can be no such file.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refusal(Status.USAGE, f"{file} cannot be written: {error.strerror}") from None
    if file.is_dir():
        raise Refusal(Status.USAGE, f"{file} is a folder, wanted a file")


def title_of(target: Target, case: Case) -> str:
    """``pkg.kernels:fn [prefill]``."""
    return f"{target} [{case.name}]" if case.name else str(target)


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The files that a case of a target may import, and the constants of its own."""

    files: SourceClosure
    path: str
    """Of the target's own file in ``files``; ``""`` where it has none."""
    constants: Mapping[str, Knob]


def sources_of(target: Target, case: Case) -> Sources:
    """Reads the work tree. Raises Refusal as ``targets.closure`` and ``knobs``."""
    generator = targets.parse_generator(case.generator, target) if case.generator else None
    others = (generator,) if generator is not None and generator.source == target.source else ()
    files = targets.closure(target, *others)
    stem = target.module.replace(".", "/")
    path = next((one for one in (f"{stem}.py", f"{stem}/__init__.py") if one in files.files), "")
    return Sources(files=files, path=path, constants=knobs(files.files[path], path) if path else {})


@dataclass
class Compilers:
    """A compiler process for each chip that is asked for, kept until the end; a context manager."""

    folder: Path
    _children: dict[str, Child]
    _stack: ExitStack
    known: dict[tuple[bytes, str, bool], Explanation] = field(default_factory=dict)
    """What was compiled, by program, chip, and whether it was modelled."""

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
