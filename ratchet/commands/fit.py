"""``ratchet fit TARGET NAME=VALUES…``"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace

from ratchet import target as targets
from ratchet.chips import CHIPS
from ratchet.commands.targets import Compilers, Sources, sources_of, target_of
from ratchet.explained import explain_artefact
from ratchet.fit import search
from ratchet.knobs import choices, in_words, points, turned
from ratchet.target import Case, Target
from ratchet.values import Point, Vmem
from ratchet.values.fit import Fit
from ratchet.values.status import Refusal, Status
from ratchet.view import verdict_json
from ratchet.view.fit import fit_document, fit_line, fit_table


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
        print(verdict_json.dumps(fit_document(fits, target=str(target))))
    else:
        print(fit_table(fits, [name for name, _ in axes], target=str(target), every=options.all))
    if any(fit.fits for fit in fits):
        return Status.PASS.exit_code
    return next((fit.status for fit in fits if fit.fits is None), Status.VMEM_OVERFLOW).exit_code


@dataclass(frozen=True, kw_only=True)
class Version:
    """A target whose knobs are constants of its file, or else keyword arguments of its function."""

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

    def fit(self, point: Point) -> Fit:
        """Export and compile one point."""
        constants = {name: value for name, value in point.items() if name in self.constants}
        options = {name: value for name, value in point.items() if name not in self.constants}
        files, path = self.sources.files, self.sources.path
        if constants:
            files = replace(files, files={**files.files, path: turned(files.files[path], path, constants)})
        case = replace(self.case, options={**self.case.options, **options})
        try:
            exported = targets.export(self.target, case, files=files)
            explanation = explain_artefact(
                exported.artefact(str(self.target)),
                CHIPS[case.chip],
                self.compilers.new_folder(),
                self.compilers.child(case.chip),
                title=in_words(point),
                modelled=False,
            )
        except Refusal as refusal:
            if refusal.status in (Status.USAGE, Status.NOT_FOUND, Status.INTERRUPTED, Status.NO_SPACE):
                raise
            return Fit(point=point, chip=case.chip, status=refusal.status, reason=refusal.message, compiled=True)
        kernels = [vmem for vmem in explanation.vmem if vmem.is_kernel]
        most: Vmem | None = max(kernels, key=lambda vmem: vmem.used_bytes / max(1, vmem.limit_bytes), default=None)
        return Fit(
            point=point,
            chip=case.chip,
            status=explanation.status,
            reason=explanation.reason,
            compiled=True,
            vmem=most,
        )
