"""Losses and omissions in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from ratchet.values import Timeline, Verdict
from ratchet.values.loss import (
    CrowdedUnit,
    IdleSteps,
    Key,
    LinkWaits,
    Loss,
    MatrixBound,
    NothingLeft,
    Outside,
    Refuted,
    Spills,
    Stalls,
    UnitStall,
    WaitCause,
    Waits,
    key_of,
)
from ratchet.values.omission import (
    LinkModel,
    LocalCopies,
    LongProgram,
    Omission,
    OpenSemaphore,
    UndecidedBranches,
    Unmodelled,
)
from ratchet.view.places import waited, where
from ratchet.view.text import clean

_UNITS = {
    "MXU": "the matrix units",
    "XLU": "the cross-lane units",
    "VALU": "the vector ALUs",
    "VPOP": "the result queues (VPOP)",
    "EUP": "the transcendental unit",
    "VLOAD": "the vector-load slots",
    "VSTORE": "the vector-store slot",
    "SALU": "scalar code",
    "HBM": "HBM",
    "branch": "branches",
    "?": "results",
    "FILL": "spilled values",
}

_WAIT_CAUSES = {
    WaitCause.BANDWIDTH: "HBM bandwidth: read less, or read it once",
    WaitCause.LATENCY: "latency, not bandwidth: fewer, larger or more deeply buffered copies would hide it",
}
_RESOURCES = {
    "HBM": ("HBM", "fewer bytes from and to it"),
    "MXU": ("the matrix units", "fewer or cheaper products"),
    "VSTORE": ("the vector-store slot", "fewer stores"),
    "links": ("the busiest link between chips", "fewer bytes on it"),
}
"""By ``NothingLeft.unit``: its name, and what would relieve it."""
_LINK_CAUSES = {
    WaitCause.BANDWIDTH: "bandwidth of the links",
    WaitCause.LATENCY: "hops and the other chips' pace",
}


def losses_in_words(timeline: Timeline, refuted: Mapping[Key, Refuted] | None = None) -> list[str]:
    """One sentence per loss of ``timeline.blame``, largest first. ``refuted``: those removed in vain before."""
    words, known = _Words(timeline), refuted or {}
    return [words.of(loss) + words.in_vain(known.get(key_of(loss))) for loss in timeline.blame.losses]


class _Words:
    """Sentences about one run: shares are of its cycles."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def of(self, loss: Loss) -> str:
        match loss:
            case Waits():
                return self._waits(loss)
            case Stalls():
                return self._stalls(loss)
            case Spills():
                return self._spills(loss)
            case IdleSteps():
                return self._idle_steps(loss)
            case CrowdedUnit():
                return self._crowded(loss)
            case Outside():
                return self._outside(loss)
            case LinkWaits():
                return self._link_waits(loss)
            case MatrixBound() | NothingLeft():
                return self._bound(loss)
        assert_never(loss)

    def in_vain(self, refuted: Refuted | None) -> str:
        if refuted is None:
            return ""
        before, after = self._ms(refuted.before_cycles), self._ms(refuted.after_cycles)
        return f"; REFUTED by {refuted.id}, which brought it from {before} to {after} and was no faster"

    def _waits(self, loss: Waits) -> str:
        return (
            f"{self._share(loss.wait_cycles)} of cycles wait for DMAs, most of it {waited(loss.place)} "
            f"(HBM {_percent(loss.hbm_busy_share)} busy: {_WAIT_CAUSES[loss.cause]}); "
            f"without the waits {self._at_best(loss)}"
        )

    def _stalls(self, loss: Stalls) -> str:
        units = "; ".join(self._unit_stall(stall) for stall in loss.units)
        return (
            f"{self._share(loss.stall_cycles)} of cycles are empty bundles that wait for results"
            f"{f' ({units})' if units else ''}: larger blocks or more independent work per step would fill them; "
            f"all filled {self._at_best(loss)}"
        )

    def _unit_stall(self, stall: UnitStall) -> str:
        return f"{self._share(stall.cycles)} for {_UNITS.get(stall.unit, stall.unit)}, most at {where(stall.place)}"

    def _spills(self, loss: Spills) -> str:
        return (
            f"{loss.stores:,} spill stores and {loss.loads:,} loads: the store slot is "
            f"{_percent(loss.store_slot_share)} busy, without them {_percent(loss.store_slot_share_without)}; "
            "more than 64 vector registers are alive in a step, smaller pieces of work need fewer; "
            f"then bound by {_UNITS[loss.next_unit]} ({_percent(loss.next_unit_share)} busy): {self._at_best(loss)}"
        )

    def _idle_steps(self, loss: IdleSteps) -> str:
        return (
            f"{loss.steps:,} of {loss.of_steps:,} grid steps do no matrix work and take {self._share(loss.cycles)} of "
            f"cycles ({_percent(loss.wait_share)} of that waiting for DMAs): a grid or an index map without them "
            f"would be {self._at_best(loss)}"
        )

    def _crowded(self, loss: CrowdedUnit) -> str:
        name = _UNITS[loss.unit]
        return (
            f"{name} {'are' if name.endswith('s') else 'is'} {_percent(loss.busy_share)} busy"
            f"{' (spills left out)' if loss.without_spills else ''}, most for {where(loss.place)}; "
            f"without that work {self._at_best(loss)}"
        )

    def _outside(self, loss: Outside) -> str:
        times = f", {loss.executions}x," if loss.executions > 1 else ""
        return (
            f"outside the kernel: {'waiting for ' if loss.waiting else ''}{where(loss.place)}{times} takes "
            f"{self._ms(loss.cycles)}, {self._share(loss.cycles)}"
        )

    def _link_waits(self, loss: LinkWaits) -> str:
        return (
            f"{self._share(loss.wait_cycles)} of cycles wait for traffic between chips "
            f"(busiest link {_percent(loss.busiest_link_share)} busy): {_LINK_CAUSES[loss.cause]}"
        )

    def _bound(self, loss: MatrixBound | NothingLeft) -> str:
        if isinstance(loss, NothingLeft):
            return self._nothing_left(loss)
        return (
            f"the matrix products alone need {self._ms(loss.ceiling_cycles)}: the busiest matrix unit is occupied "
            f"{self._share(loss.ceiling_cycles)} of the time"
        )

    def _nothing_left(self, loss: NothingLeft) -> str:
        name, less = _RESOURCES[loss.unit]
        busy = f"{name} for {self._share(loss.ceiling_cycles)} of the time"
        if not loss.saturated:
            return f"nothing left: no loss costs half a percent of the run, which needs {busy}"
        return f"nothing left: the run needs {busy}, so only {less} would make it faster"

    def _at_best(self, loss: Loss) -> str:
        return f"at best {self._ms(loss.ceiling_cycles)}"

    def _ms(self, cycles: int) -> str:
        return f"{cycles / self._timeline.clock_hz * 1e3:.3g} ms"

    def _share(self, cycles: int) -> str:
        return _percent(cycles / max(1, self._timeline.cycles))


_UNMODELLED = {
    Unmodelled.SURROUNDINGS: "clock throttling under power limits, contention for VMEM ports, the launch from the host",
    Unmodelled.COMPUTED_ASSERTIONS: "assertions on values that vector code computes: they are taken to hold",
    Unmodelled.FLOAT_TABLES: "other float inputs: XLA computes tables that steer the kernel from floats, and the "
    "latency is that of the problem's public ones, on which the kernel was checked, too",
    Unmodelled.LAUNCH_CHECK: "the launch check: before the program the chips compare what each was asked to run, "
    "which is taken to agree",
}


def omissions_in_words(timeline: Timeline) -> list[str]:
    """One sentence for each thing that the model leaves out or assumes for this program."""
    return [_omission(omission, timeline) for omission in timeline.not_modelled]


def notes(verdict: Verdict) -> list[str]:
    """What a reader of a verdict must know: its own notes, and what the model leaves out."""
    omissions = omissions_in_words(verdict.timeline) if verdict.timeline is not None else []
    return [*verdict.notes, *omissions]


def _omission(omission: Omission, timeline: Timeline) -> str:
    match omission:
        case Unmodelled():
            return _UNMODELLED[omission]
        case LongProgram():
            return (
                f"instruction fetches of {clean(omission.program)}: {omission.bundles} bundles is a very long program"
            )
        case LocalCopies():
            return (
                f"measured speed of DMAs between on-chip memories ({omission.bytes} bytes here): bandwidth and latency "
                "are assumed"
            )
        case UndecidedBranches():
            fast, slow = (cycles / timeline.clock_hz * 1e3 for cycles in (omission.fast_cycles, omission.slow_cycles))
            return (
                f"branches on computed values: taking all or none of them makes {fast:.4g} ms and {slow:.4g} ms, "
                "the slower is reported"
            )
        case LinkModel():
            return (
                "speed and latency of the links between chips beyond "
                f"{omission.link_bytes_per_s / 1e9:g} GB/s per link and direction and {omission.hop_s * 1e6:g} us per "
                "hop, which were fitted on two published programs"
            )
        case OpenSemaphore():
            return f"semaphore between chips that does not end at 0: {clean(omission.name)} at {omission.value}"
    assert_never(omission)


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < 0.0995 else f"{share:.0%}"
