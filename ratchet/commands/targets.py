"""``explain`` and ``fit``, and the TARGET of a command line: which function, for which inputs and chips."""

from __future__ import annotations

import argparse
import os
import shlex
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ratchet.commands.options import PROGRAM, json_option, knobs_argument, target_options
from ratchet.exam.candidate import target as targets
from ratchet.exam.candidate.source_closure import SourceClosure
from ratchet.exam.candidate.target import GENERATOR, Case, Target
from ratchet.exam.judge.correctness import Examiner
from ratchet.exam.judge.workers import Workers
from ratchet.exam.problem import problem as problems
from ratchet.exam.problem.problem import Problem
from ratchet.kernelfile.knobs import Knob, choices, in_words, knobs, points, with_constants
from ratchet.process import paths
from ratchet.process.boot import home
from ratchet.process.sandbox.child import Child
from ratchet.tpu.chips import CHIPS
from ratchet.tpu.compiler import compile as compiling
from ratchet.tpu.computed_operands import computed_operands
from ratchet.tpu.dump.files import OPTIMIZED, load_hlo
from ratchet.tpu.explain import explain_artefact
from ratchet.tune.fit import search
from ratchet.values import Explanation, Point, Program
from ratchet.values.omission import Unmodelled
from ratchet.values.points import Fit
from ratchet.values.status import Refusal, Status
from ratchet.view.console import terminal_width
from ratchet.view.document import dumps
from ratchet.view.explain import explain_document, explain_text, vmem_text
from ratchet.view.points import fit_document, fit_line, fit_table
from ratchet.view.text import fitted
from ratchet.view.xspace import trace_path, write_xspace
from ratchet.wiring import hbm_buffers

_DIGITS = 9


# --- explain ---


def explain_options(parser: argparse.ArgumentParser) -> None:
    """A target, and what of it."""
    target_options(parser)
    parser.add_argument("--vmem", action="store_true", help="VMEM alone: by allocation, and what would free some")
    parser.add_argument("--trace", type=Path, metavar="DIR", help="also write the modelled run as XProf traces there")
    json_option(parser)


def explain_command(options: argparse.Namespace, *, say: Callable[[str], None]) -> int:
    """Explain every case on every chip; the exit code is that of the first that cannot be explained in full."""
    target, cases = target_of(options)
    if options.trace:
        folder_for(options.trace / "trace")
    explanations: list[Explanation] = []
    with Compilers.start() as compilers:
        for number, case in enumerate(cases):
            name = f"{number}-{case.name or 'case'}-{case.chip}"
            said = "traced and compiled" if options.vmem else "traced, compiled and modelled"
            say(f"{title_of(target, case)}: {said} for {case.chip} …")
            trace = trace_path(options.trace, name) if options.trace else None
            one = _explained(target, case, compilers, modelled=not options.vmem, trace=trace)
            explanations.append(one)
            if trace is not None and one.timeline is not None:
                say(f"trace: {trace}; open it with `xprof --port=8791 {options.trace}`")
    if options.json:
        print(dumps({"explanations": [explain_document(one) for one in explanations]}))
    else:
        text = "\n\n".join((vmem_text if options.vmem else explain_text)(one) for one in explanations)
        print(fitted(text, terminal_width()))
    return next((one.status for one in explanations if one.status is not Status.PASS), Status.PASS).exit_code


def _explained(target: Target, case: Case, compilers: Compilers, *, modelled: bool, trace: Path | None) -> Explanation:
    folder, title = compilers.new_folder(), title_of(target, case)
    sources = sources_of(target, case)
    exported = targets.export(target, case, files=sources.files)
    frozen = _frozen(target, case, exported)
    explanation = compilers.explained(exported, case.chip, title, modelled=modelled, folder=folder, frozen=frozen)
    if explanation.status is Status.SCHEDULE_UNKNOWN and frozen is None and case.generator == GENERATOR:
        shown = os.path.relpath(_file(target))
        todo = f'`{PROGRAM} --kernel {shlex.quote(shown)} "baseline"` freezes its inputs, which then steer'
        explanation = replace(explanation, reason=f"{explanation.reason}; {todo}")
    if trace is not None and explanation.timeline is not None:
        data, footprint = paths.read(folder / OPTIMIZED), explanation.footprint
        buffers = hbm_buffers(data, footprint.hbm_bytes) if footprint else ()
        write_xspace(explanation.timeline, trace, title=title, hlo_module=data, buffers=buffers)
    return replace(explanation, knobs=_by_value(sources.constants.values()))


def _frozen(target: Target, case: Case, exported: targets.Exported) -> Problem | None:
    """The problem of a kernel file that is explained for its own inputs, where one is frozen for these."""
    if case.generator != GENERATOR or target.source is None:
        return None
    try:
        problem = problems.read(problems.lock_path(_file(target)))
    except Refusal:
        return None
    return problem if problem is not None and problem.inputs == exported.inputs else None


def _file(target: Target) -> Path:
    return (target.source or Path()) / f"{target.module.replace('.', '/')}.py"


def _by_value(constants: Iterable[Knob]) -> dict[int, tuple[str, ...]]:
    """Names of constants by their value, of those that are written as an integer."""
    named: dict[int, tuple[str, ...]] = {}
    for knob in constants:
        if knob.value.isascii() and knob.value.isdigit() and len(knob.value) <= _DIGITS:
            named[int(knob.value)] = (*named.get(int(knob.value), ()), knob.name)
    return named


# --- fit ---


def fit_options(parser: argparse.ArgumentParser) -> None:
    """A target and its knobs."""
    target_options(parser)
    knobs_argument(parser)
    parser.add_argument("--all", action="store_true", help="compile every point, and say whether the others followed")
    json_option(parser)


def fit_command(options: argparse.Namespace, *, say: Callable[[str], None]) -> int:
    """Say which points fit on which chip; the exit code is ``VMEM_OVERFLOW`` where none does."""
    target, cases = target_of(options)
    axes = [choices(text) for text in options.knobs]
    wanted = points(axes)
    fits: list[Fit] = []
    with Compilers.start() as compilers:
        for case in cases:
            version = Version.of(target, case, [name for name, _ in axes], compilers)
            for fit in search(wanted, case.chip, version.fit, every=options.all):
                fits.append(fit)
                if fit.compiled:
                    say(fit_line(fit))
    if options.json:
        print(dumps(fit_document(fits, target=str(target))))
    else:
        print(fit_table(fits, [name for name, _ in axes], target=str(target), every=options.all))
    if any(fit.fits for fit in fits):
        return Status.PASS.exit_code
    return next((fit.status for fit in fits if fit.fits is None), Status.VMEM_OVERFLOW).exit_code


@dataclass(frozen=True, kw_only=True)
class Version:
    """A target for one case, whose knobs are constants of its file, or else keyword arguments of its function."""

    target: Target
    case: Case
    sources: Sources
    constants: frozenset[str]
    """Knobs that the file sets."""
    compilers: Compilers

    @classmethod
    def of(cls, target: Target, case: Case, names: list[str], compilers: Compilers) -> Version:
        """What is turned where. Raises Refusal as ``sources_of``."""
        sources = sources_of(target, case)
        constants = frozenset(names) & sources.constants.keys()
        return cls(target=target, case=case, sources=sources, constants=constants, compilers=compilers)

    def explained(self, point: Point, *, modelled: bool) -> Explanation:
        """Export and compile one point; programs of the same bytes once. A point that is refused says why.

        Raises:
          Refusal: for what is no fault of the point's.
        """
        try:
            return self._explained(point, modelled=modelled)
        except Refusal as refusal:
            if refusal.status in (Status.USAGE, Status.NOT_FOUND, Status.INTERRUPTED, Status.NO_SPACE):
                raise
            why = refusal.message
            return Explanation(title="", chip=self.case.chip, compiler="", status=refusal.status, reason=why)

    def _explained(self, point: Point, *, modelled: bool) -> Explanation:
        constants = {name: value for name, value in point.items() if name in self.constants}
        options = {name: value for name, value in point.items() if name not in self.constants}
        files, path = self.sources.files, self.sources.path
        if constants:
            files = replace(files, files={**files.files, path: with_constants(files.files[path], path, constants)})
        case = replace(self.case, options={**self.case.options, **options})
        exported = targets.export(self.target, case, files=files)
        key, known = (exported.program, case.chip, modelled), self.compilers.known
        if key not in known:
            known[key] = self.compilers.explained(exported, case.chip, in_words(point), modelled=modelled)
        return known[key]

    def fit(self, point: Point) -> Fit:
        """Whether one point fits."""
        explanation = self.explained(point, modelled=False)
        return Fit(
            point=point,
            chip=self.case.chip,
            status=explanation.status,
            reason=explanation.reason,
            compiled=True,
            vmem=None if explanation.status is Status.NOT_MODELLED else explanation.fullest,
        )


# --- targets ---


def written(options: argparse.Namespace) -> str:
    """The target as the user wrote it."""
    return options.target or home.KERNEL


def target_of(options: argparse.Namespace) -> tuple[Target, tuple[Case, ...]]:
    """The target and its cases, one for each chip that was asked for.

    Raises:
      Refusal: ``USAGE``, ``NOT_FOUND``.
    """
    target = targets.parse(written(options))
    if options.inputs is not None:
        if options.input:
            raise Refusal(Status.USAGE, "--input and --inputs say the same twice: give one of them")
        if options.mesh:
            raise Refusal(Status.USAGE, f"--mesh goes with --input; a case of {options.inputs} has its own `mesh`")
        chosen = targets.cases(options.inputs)
        if options.case:
            chosen = tuple(case for case in chosen if case.name in options.case)
        missing = set(options.case or ()) - {case.name for case in chosen}
        if missing:
            raise Refusal(Status.NOT_FOUND, f"{options.inputs} has no case {sorted(missing)[0]!r:.60}")
    else:
        chosen = (targets.inline(options.input or [GENERATOR], mesh=options.mesh),)
    if not options.chip:
        return target, chosen
    return target, tuple(replace(case, chip=chip) for case in chosen for chip in options.chip)


def folder_for(file: Path) -> None:
    """Make the folder that ``file`` will be written to, before minutes go by.

    Raises:
      Refusal: ``USAGE`` where there can be no such file.
    """
    try:
        paths.make_folder(file.parent)
    except OSError as error:
        raise Refusal(Status.USAGE, f"{file} cannot be written: {error.strerror}") from None
    if paths.is_folder(file):
        raise Refusal(Status.USAGE, f"{file} is a folder, wanted a file")


def title_of(target: Target | str, case: Case) -> str:
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
        """The process of a chip, started when it is first needed, or again where it died."""
        child = self._children.get(chip)
        if child is None or not child.alive:
            child = self._stack.enter_context(compiling.start(self.new_folder(), CHIPS[chip]))
            self._children[chip] = child
        return child

    def explained(
        self,
        exported: targets.Exported,
        chip: str,
        title: str,
        *,
        modelled: bool = True,
        folder: Path | None = None,
        frozen: Problem | None = None,
    ) -> Explanation:
        """A program compiled for a chip, and modelled, with the integers of a frozen problem's public inputs.

        Raises Refusal as ``explain_artefact``.
        """
        folder = folder or self.new_folder()
        artefact, child = exported.artefact(title), self.child(chip)
        left_out: list[Unmodelled] = []
        steering = partial(self._steering, frozen, left_out) if frozen is not None else None
        found = explain_artefact(
            artefact, CHIPS[chip], folder, child, title=title, modelled=modelled, steering=steering
        )
        run = found.timeline
        return replace(found, timeline=replace(run, not_modelled=(*left_out, *run.not_modelled))) if run else found

    def _steering(self, frozen: Problem, left_out: list[Unmodelled], program: Program) -> Mapping[int | str, Any]:
        """As a verdict has it: inputs by position, and on one chip what XLA computes of them for kernels.

        ``left_out`` gets what the modelled run leaves out for it.
        """
        with Workers(CHIPS[program.chip], compiles=False, one_file=True) as workers:
            exam = Examiner(workers=workers, root=self.folder)
            operands = computed_operands(load_hlo(program.dump_dir)) if len(program.chip_ids) == 1 else ()
            seen = workers.root / compiling.PROGRAM  # the values child sees no other folder
            paths.write(seen, paths.read(program.dump_dir / compiling.PROGRAM))
            (steering, computed), found = exam.steered(frozen, seen, operands)
            left_out += found
        return {**steering, **(computed[0] if computed else {})}

    def new_folder(self) -> Path:
        """An empty one."""
        return Path(tempfile.mkdtemp(dir=self.folder))

    def __enter__(self) -> Compilers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
