"""The least that a problem takes on a chip: its products at the peak of their dtypes, the bytes it touches. Pure.

All of it is a lower bound, so that a latency below it means that work is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from ratchet.exam.problem.problem import Problem, array_bytes
from ratchet.tpu.chips import Ici


class Peak(Protocol):
    """What a device can do at most: a ``Chip``, or what is known of a GPU or CPU."""

    @property
    def name(self) -> str: ...
    @property
    def peak_bf16_flops(self) -> float: ...
    @property
    def hbm_bytes_per_s(self) -> float: ...
    def peak_flops(self, kind: str) -> float:
        """FLOPs per second of products of ``kind``, as ``ratchet.exam.problem.work.Work`` names them."""


COUNTED_ALIKE = 1.05
"""Two counts of FLOPs up to this ratio are one."""


@dataclass(frozen=True, kw_only=True)
class Floor:
    """The least of one problem on ``chips`` devices, which share it evenly."""

    flops: int
    """Useful ones, of all chips together."""
    compute_s: float
    """Of one chip that does all of it."""
    bandwidth_s: float
    """Of one chip that moves all of it."""
    chips: int = 1
    links_s: float = 0.0
    """In which the chip that has to send or receive most does so, over all of its links at once."""

    @property
    def ms(self) -> float:
        """The least time that any program can take."""
        return max(max(self.compute_s, self.bandwidth_s) / self.chips, self.links_s) * 1e3


def floor_of(problem: Problem, peak: Peak, useful: int | None = None) -> Floor:
    """The floor of a frozen problem. ``useful``: what counts of its FLOPs, if not all."""
    flops = problem.flops if useful is None else useful
    rates = {kind: rate(kind, problem, peak) for kind in products(problem)}
    return Floor(
        flops=flops,
        compute_s=compute_seconds(flops, products(problem), rates, peak.peak_bf16_flops),
        bandwidth_s=touched_bytes(problem) / peak.hbm_bytes_per_s,
        chips=problem.mesh.chips,
    )


def link_seconds(problem: Problem, ici: Ici) -> float:
    """The least time between chips, in seconds: 0 where the frozen problem knows of no bytes that have to be sent."""
    least = cast(int, problem.work.get("link_bytes", 0))
    return least / (ici.links_of_a_chip * ici.link_bytes_per_s)


def useful_flops(claimed: int, counted: float) -> tuple[int, str]:
    """What counts of ``compute_flops()``, at most what the reference computes as written, and a note where it is less.

    ``counted``: XLA's count, transcendental functions included; 0 where it has none. Hand counts may differ a little.
    """
    if not counted or claimed <= COUNTED_ALIKE * counted:
        return claimed, ""
    return int(counted), f"compute_flops() claims {claimed:.4g}, the reference computes {counted:.4g}, which count"


def products(problem: Problem) -> Mapping[str, int]:
    """FLOPs of the reference's products by kind; none where the frozen problem does not say."""
    return cast(Mapping[str, int], problem.work.get("products", {}))


def touched_bytes(problem: Problem) -> int:
    """Bytes that any program has to move: of each input what is taken from it, of each output what is written."""
    if not problem.work:
        return problem.compulsory_bytes
    return sum(cast(Sequence[int], problem.work["input_bytes"])) + written_bytes(problem)


def written_bytes(problem: Problem) -> int:
    """The part of it that is written: of an input that is updated in place, the update."""
    if not problem.work:
        return sum(array_bytes(spec) for spec in problem.outputs)
    return sum(cast(Sequence[int], problem.work["output_bytes"]))


def compute_seconds(flops: int, products: Mapping[str, int], rates: Mapping[str, float], otherwise: float) -> float:
    """The least time for ``flops`` of a reference's products, in seconds.

    A reference multiplies more than is useful where it masks. Which of its products are useful is not known, so the
    fastest count first. What is no product counts at the rate ``otherwise``.
    """
    left, done = flops, dict[float, int]()
    for kind, count in sorted(products.items(), key=lambda item: -rates[item[0]]):
        part = min(left, count)
        done[rates[kind]] = done.get(rates[kind], 0) + part
        left -= part
    done[otherwise] = done.get(otherwise, 0) + left
    return sum(count / speed for speed, count in done.items())


def rate(kind: str, problem: Problem, peak: Peak) -> float:
    """FLOPs per second of one kind of products in this problem, at most.

    A reference may multiply in a wider dtype than its values need: integers of 8 bits at most as anything, and float32
    of a problem with narrower floats in one pass, because its answers are allowed what rounding those costs.
    """
    dtypes = [spec.dtype for spec in (*problem.inputs, *problem.outputs)]
    floats = [dtype for dtype in dtypes if "float" in dtype]
    narrow = [spec.dtype for spec in problem.inputs if spec.dtype in NARROW]
    if len(narrow) > 1 or (narrow and not any("float" in spec.dtype for spec in problem.inputs)):
        return max(peak.peak_flops(each) for each in {kind, *(_KINDS[dtype] for dtype in narrow)})
    if any(dtype not in ("float32", "float64") for dtype in floats):
        return peak.peak_flops("f32x1" if kind.startswith("f32") else kind)
    return peak.peak_flops(_WITH_NARROW.get(kind, kind) if narrow else kind)


NARROW = frozenset({"int8", "uint8", "int4", "uint4"})
_KINDS = {"int8": "int8", "uint8": "int8", "int4": "int4", "uint4": "int4"}
_WITH_NARROW = {"f32x6": "f32x3", "f32x3": "f32x2"}
"""Passes where one factor is a small integer: it needs one part of the two or three of a float32."""
