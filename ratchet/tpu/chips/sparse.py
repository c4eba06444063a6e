"""The SparseCores beside a TensorCore, as far as its programs wait for them.

XLA lets them copy an array into another layout while or after the TensorCore works. Their programs are in no dump:
what a copy of theirs takes is two constants per chip.
"""

from __future__ import annotations

from dataclasses import dataclass

from ratchet.values.status import Refusal, Status


@dataclass(frozen=True, kw_only=True)
class SparseCores:
    """Those that one device's programs use."""

    count: int
    bytes_per_s: float
    """What all together copy into another layout, bytes read plus bytes written."""
    start_s: float
    """From the signal to start until the signal that a program is over, beyond the time of its bytes."""
    go_flag: int
    """Flag of a SparseCore that starts its next program, as libtpu 0.0.42.1 writes it."""
    source: str


_KNOWN = {
    "tpu7x": SparseCores(
        count=2,
        bytes_per_s=3300e9,
        start_s=5e-6,
        go_flag=7053,
        source="assumed: nine tenths of the bandwidth of HBM. Published device times hold no copy of a result; "
        "with a start of 0 or 10 us the grouped matmuls (tokamax) fit about as well",
    ),
    "v5p": SparseCores(
        count=4,
        bytes_per_s=2500e9,
        start_s=5e-6,
        go_flag=7043,
        source="assumed: as for tpu7x",
    ),
}


def sparse_cores_of(name: str) -> SparseCores:
    """The SparseCores of a chip. Raises Refusal SCHEDULE_UNKNOWN for a chip whose own are not described."""
    if name not in _KNOWN:
        raise Refusal(
            Status.SCHEDULE_UNKNOWN,
            f"the program uses SparseCores, which are not described for {name}; described: {', '.join(_KNOWN)}.",
        )
    return _KNOWN[name]
