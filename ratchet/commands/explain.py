"""``ratchet explain TARGET``"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from ratchet.commands.targets import Compilers, folder_for, numbered, sources_of, target_of, title_of
from ratchet.exam.candidate import target as targets
from ratchet.exam.candidate.target import Case, Target
from ratchet.kernelfile.knobs import Knob
from ratchet.tpu.chips import CHIPS
from ratchet.tpu.dump.files import OPTIMIZED
from ratchet.tpu.explain import explain_artefact
from ratchet.values import Explanation
from ratchet.values.status import Status
from ratchet.view.document import dumps
from ratchet.view.explain import explain_document, explain_text, vmem_text
from ratchet.view.xspace import trace_path, write_xspace
from ratchet.wiring import hbm_buffers

_DIGITS = 9


def command(options: argparse.Namespace, *, say: Callable[[str], None]) -> int:
    """Explain every case on every chip; the exit code is that of the first that cannot be explained in full."""
    target, cases = target_of(options)
    if options.trace:
        folder_for(options.trace / "trace")
    explanations: list[Explanation] = []
    with Compilers.start() as compilers:
        for name, case in numbered(cases):
            trace = trace_path(options.trace, name) if options.trace else None
            one = _explained(target, case, compilers, modelled=not options.vmem, trace=trace)
            explanations.append(one)
            if trace is not None and one.timeline is not None:
                say(f"trace: {trace}; open it with `xprof --port=8791 {options.trace}`")
    if options.json:
        print(dumps({"explanations": [explain_document(one) for one in explanations]}))
    else:
        print("\n\n".join((vmem_text if options.vmem else explain_text)(one) for one in explanations))
    return next((one.status for one in explanations if one.status is not Status.PASS), Status.PASS).exit_code


def _explained(target: Target, case: Case, compilers: Compilers, *, modelled: bool, trace: Path | None) -> Explanation:
    folder, title = compilers.new_folder(), title_of(target, case)
    sources = sources_of(target, case)
    exported = targets.export(target, case, files=sources.files)
    child = compilers.child(case.chip)
    explanation = explain_artefact(
        exported.artefact(title), CHIPS[case.chip], folder, child, title=title, modelled=modelled
    )
    if trace is not None and explanation.timeline is not None:
        data, footprint = (folder / OPTIMIZED).read_bytes(), explanation.footprint
        buffers = hbm_buffers(data, footprint.hbm_bytes) if footprint else ()
        write_xspace(explanation.timeline, trace, title=title, hlo_module=data, buffers=buffers)
    return replace(explanation, knobs=_by_value(sources.constants.values()))


def _by_value(constants: Iterable[Knob]) -> dict[int, tuple[str, ...]]:
    """Names of constants by their value, of those that are written as an integer."""
    named: dict[int, tuple[str, ...]] = {}
    for knob in constants:
        if knob.value.isascii() and knob.value.isdigit() and len(knob.value) <= _DIGITS:
            named[int(knob.value)] = (*named.get(int(knob.value), ()), knob.name)
    return named
