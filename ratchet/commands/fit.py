"""``ratchet fit TARGET NAME=VALUES…``"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace

from ratchet.commands.targets import Compilers, Sources, sources_of, target_of
from ratchet.exam.candidate import target as targets
from ratchet.exam.candidate.target import Case, Target
from ratchet.kernelfile.knobs import choices, in_words, points, with_constants
from ratchet.tpu.chips import CHIPS
from ratchet.tpu.explain import explain_artefact
from ratchet.tune.fit import search
from ratchet.values import Explanation, Point
from ratchet.values.points import Fit
from ratchet.values.status import Refusal, Status
from ratchet.view.document import dumps
from ratchet.view.points import fit_document, fit_line, fit_table


def command(options: argparse.Namespace, *, say: Callable[[str], None]) -> int:
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
        """Export and compile one point; programs of the same bytes once. Raises Refusal as ``explain_artefact``."""
        constants = {name: value for name, value in point.items() if name in self.constants}
        options = {name: value for name, value in point.items() if name not in self.constants}
        files, path = self.sources.files, self.sources.path
        if constants:
            files = replace(files, files={**files.files, path: with_constants(files.files[path], path, constants)})
        case = replace(self.case, options={**self.case.options, **options})
        exported = targets.export(self.target, case, files=files)
        key, known = (exported.program, case.chip, modelled), self.compilers.known
        if key not in known:
            known[key] = explain_artefact(
                exported.artefact(str(self.target)),
                CHIPS[case.chip],
                self.compilers.new_folder(),
                self.compilers.child(case.chip),
                title=in_words(point),
                modelled=modelled,
            )
        return known[key]

    def fit(self, point: Point) -> Fit:
        """Whether one point fits."""
        try:
            explanation = self.explained(point, modelled=False)
        except Refusal as refusal:
            if refusal.status in (Status.USAGE, Status.NOT_FOUND, Status.INTERRUPTED, Status.NO_SPACE):
                raise
            return Fit(point=point, chip=self.case.chip, status=refusal.status, reason=refusal.message, compiled=True)
        return Fit(
            point=point,
            chip=self.case.chip,
            status=explanation.status,
            reason=explanation.reason,
            compiled=True,
            vmem=explanation.fullest,
        )
