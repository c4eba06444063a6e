"""``ratchet plot WHAT -o FILE``"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from ratchet.commands.report import which, write
from ratchet.report import charts, words
from ratchet.report.files import FORMATS, drawn
from ratchet.report.gather import material
from ratchet.report.story import Story, story
from ratchet.values.status import Refusal, Status
from ratchet.view.text import clean

_NO_LATENCY = "no experiment on it has a latency"
_NO_EVIDENCE = "its modelled run is not on this disk: judge it again with --fresh"


def command(options: argparse.Namespace, *, root: Path, say: Callable[[str], None]) -> int:
    """Draw one chart of a kernel's ledger or of its current modelled run."""
    if options.output.suffix.removeprefix(".").lower() not in FORMATS:
        raise Refusal(Status.USAGE, f"-o: got {options.output.name!r:.60}, wanted a name that ends in .svg or .png")
    overview = story(material(root, which(root, options.kernel)))
    spec, title = _chart(overview, options.what)
    write(options.output, drawn(spec, title=title, suffix=options.output.suffix), root=root, say=say)
    return Status.PASS.exit_code


def _chart(overview: Story, what: str) -> tuple[charts.Spec, str]:
    track, evidence, kernel = overview.main, overview.material.evidence, clean(overview.material.kernel, 60)
    kind = words.kind(track) if track else ""
    spec: charts.Spec | None
    if what == "trajectory":
        spec, missing = (charts.trajectory(track) if track else None), _NO_LATENCY
    elif what == "roofline":
        spec, missing = (
            charts.roofline(overview),
            f"{_NO_LATENCY}, or its FLOPs or the limits of its device are not known",
        )
    elif what == "fidelity":
        spec, missing = charts.fidelity(overview), "no row of it has both a measured and a modelled latency"
    elif what == "units":
        run = evidence.timeline if evidence else None
        spec, missing = (charts.spent(run) if run and run.blame.lines else None), _NO_EVIDENCE
    else:
        kernels = [one for one in evidence.vmem if one.allocations] if evidence else []
        spec, missing = (charts.vmem(kernels[0]) if kernels else None), _NO_EVIDENCE
    if spec is None:
        raise Refusal(Status.NOT_FOUND, f"there is nothing to plot as {what} of {kernel}: {missing}")
    return spec, f"{kernel}: {_TITLES[what]}{f', {kind}' if kind and what != 'fidelity' else ''}"


_TITLES = {
    "trajectory": "latency of each experiment",
    "roofline": "roofline",
    "units": "where each cycle went",
    "vmem": "VMEM by buffer",
    "fidelity": "measured over modelled latency",
}
PLOTS = tuple(_TITLES)
