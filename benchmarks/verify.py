"""Kernels executed from their exported TPU program, beside Pallas's own interpret mode: values, seconds, operations.

    python -m benchmarks.verify [--json FILE] [--only NAME ...]

``judge`` is loading, compiling and running the program for the first time; ``interpret`` is tracing, compiling and
running the interpreted twin for the first time; ``cpu`` is CPU seconds of that, ``again`` a second run, ``check`` a
check for hazards as a verdict makes one: up to three runs, and another translation where there are DMAs. Products of
f32 operands are exact in both (``ratchet.tpu.mosaic.state.Options``). Where interpret mode itself cannot run a
kernel, a reference without Pallas is used instead, which the table says. Measured here and now; other work on the
machine shows.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any

DEVICES = 4
os.environ.setdefault("JAX_PLATFORMS", "cpu")
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"

import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax import export  # noqa: E402

from benchmarks.lib import verify_cases, verify_peers, verify_small  # noqa: E402
from benchmarks.lib.command import command  # noqa: E402
from benchmarks.lib.interpreted import interpreted, on_v5e  # noqa: E402
from benchmarks.lib.table import show  # noqa: E402
from benchmarks.lib.verify_cases import Case  # noqa: E402
from ratchet.tpu.mosaic.run import Loaded, load  # noqa: E402
from ratchet.values.status import Refusal  # noqa: E402

BUILDERS: dict[str, Callable[[], Case]] = {**verify_cases.BUILDERS, **verify_small.BUILDERS, **verify_peers.BUILDERS}
"""Every case; tokamax's only where it is installed."""


def program(case: Case) -> bytes:
    """The exported TPU program of a case."""
    function = case.function if hasattr(case.function, "trace") else jax.jit(case.function)
    if case.devices > 1:
        return bytes(export.export(function, platforms=("tpu",))(*case.inputs).serialize())
    with on_v5e():
        return bytes(export.export(function, platforms=("tpu",))(*case.inputs).serialize())


def twin(case: Case) -> tuple[list[np.ndarray], float | None, float | None, float | None, str]:
    """Interpret mode's outputs, seconds of a first and a second run, CPU seconds of the first, and what it was."""
    try:
        with contextlib.nullcontext() if case.devices > 1 else on_v5e():
            start, cpu = time.perf_counter(), time.process_time()
            function = interpreted(case.function, *case.inputs)
            outputs = jax.block_until_ready(function(*case.inputs))
            first, cpu, start = time.perf_counter() - start, time.process_time() - cpu, time.perf_counter()
            jax.block_until_ready(function(*case.inputs))
    except Exception as error:  # interpret mode fails in many ways; each means the same here
        if case.reference is None:
            raise
        print(f"{case.name}: interpret=True fails: {type(error).__name__}: {str(error)[:100]}", file=sys.stderr)
        return [np.asarray(x) for x in jax.tree.leaves(case.reference(*case.inputs))], None, None, None, "reference"
    return [np.asarray(x) for x in outputs], first, time.perf_counter() - start, cpu, "interpret=True"


def difference(got: tuple[np.ndarray, ...], want: list[np.ndarray]) -> float:
    """Largest difference over the largest magnitude, over all outputs; NaN must meet NaN."""
    worst = 0.0
    for a, b in zip(got, want, strict=True):
        a64, b64 = a.astype(np.float64), b.astype(np.float64)
        if a.shape != b.shape or not np.array_equal(np.isnan(a64), np.isnan(b64)):
            return float("inf")
        with np.errstate(invalid="ignore"):
            apart = np.where(a64 == b64, 0.0, np.abs(a64 - b64))
        worst = max(
            worst, float(np.nanmax(apart, initial=0.0)) / max(float(np.nanmax(np.abs(b64), initial=0.0)), 1e-30)
        )
    return worst


def row(case: Case) -> dict[str, Any]:
    """One line of the table."""
    exported = program(case)
    start, cpu = time.perf_counter(), time.process_time()
    try:
        loaded: Loaded = load(exported, f32_matmul_passes="exact")
        result = loaded.run(case.inputs)
        first, cpu = time.perf_counter() - start, time.process_time() - cpu
        again = loaded.run(case.inputs).seconds
        start = time.perf_counter()
        checked = loaded.check(case.inputs)
        check = time.perf_counter() - start
    except Refusal as refusal:
        return {"kernel": case.name, "values": f"{refusal.status.name}: {refusal.message}"}
    wanted, interpreted_first, interpreted_again, interpreted_cpu, against = twin(case)
    apart = difference(result.outputs, wanted)
    verdict = "equal" if apart <= case.tolerance else "DIFFERS"
    return {
        "kernel": case.name,
        "values": "; ".join([verdict, *map(str, checked.findings)]),
        "difference": apart,
        "judge s": first,
        "cpu s": cpu,
        "again s": again,
        "check s": check,
        "interpret s": interpreted_first,
        "interpret cpu s": interpreted_cpu,
        "interpret again s": interpreted_again,
        "against": against,
        "operations": len(loaded.program.covered),
    }


def main() -> int:
    parser = command(__doc__)
    parser.add_argument("--only", nargs="*", default=list(BUILDERS), help=f"some of: {' '.join(BUILDERS)}")
    options = parser.parse_args()
    rows = []
    for name, builder in BUILDERS.items():
        if name in options.only:
            print(f"{name} …", file=sys.stderr, flush=True)
            rows.append(row(builder()))
    equal = sum(one["values"] == "equal" for one in rows)
    total: dict[str, Any] = {"kernel": "all", "values": f"{equal} of {len(rows)} equal"}
    total |= {name: sum(one.get(name) or 0.0 for one in rows) for name in rows[0] if name.endswith(" s")}
    show("Exported programs executed for their values", [*rows, total], json_file=options.json)
    return 0 if all(one["values"].startswith("equal") for one in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
