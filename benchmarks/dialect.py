"""Which operations the TPU compiler takes, by chip: asked one by one, for the page on what the judge can execute.

    python -m benchmarks.dialect [--only NAME…] [--on CHIP…] [--write] [--json FILE]

A minimal kernel for each operation of the bindings (``benchmarks/lib/dialect_kernels.py``) is compiled for a v5e, v5p,
v6e and tpu7x, on the TensorCore and, without Mosaic's passes for layouts, on a SparseCore, whose vectors here are its
registers. ``--write`` keeps the answers in ``benchmarks/data/lowers.json``, as what ``python -m tools.operations``
counts: of the operations and chips that were asked, all of which answered. It takes minutes.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from benchmarks.lib import dialect_kernels
from benchmarks.lib.command import command, say
from benchmarks.lib.dialect_kernels import SPARSE_CORE, TENSOR_CORE, Core
from benchmarks.lib.dialects import keep, place, registered, version, versions
from benchmarks.lib.table import show_all
from ratchet.tpu.chips import CHIPS
from ratchet.tpu.compiler import environment

LANES = {"v5e": 0, "v5p": 8, "v6e": 8, "tpu7x": 16}
"""Of a SparseCore's vectors, as ``jax.experimental.pallas.tpu.get_tpu_info`` says; 0 where a chip has none."""
NO_KERNEL = "no kernel"
DIES = "the compiler dies, or does not come back"
PATIENCE_S = 60
"""For all kernels of an operation; the first pays for the start of the compiler."""


def enter(chip: str) -> None:
    """Make this process one that compiles for ``chip``, before it imports JAX."""
    os.environ.update(environment.environment(CHIPS[chip], None), TPU_STDERR_LOG_LEVEL="3", TPU_MIN_LOG_LEVEL="3")


def ask(chip: str, kind: str, operation: str) -> str:
    """``""`` where one of the kernels of an operation compiles, else why the last did not."""
    core, why = Core(kind=kind, lanes=LANES[chip] or 8), NO_KERNEL
    for body in dialect_kernels.lines(operation):
        try:
            text = kernel(core, body)
        except ValueError as error:
            why = f"{NO_KERNEL}: {error}" if why.startswith(NO_KERNEL) else why
            continue
        try:
            _compile(core, text, chip)
        except Exception as error:
            why = " ".join(str(error).split()).rpartition("compile TPU kernel: ")[2][:160]
        else:
            return ""
    return why


def kernel(core: Core, body: str) -> str:
    """The kernel of a body with what it computes stored.

    Raises:
        ValueError: the bindings do not take it, or nothing is known to store its result by.
    """
    if not re.search(r"%r\b", body):
        text = dialect_kernels.module(core, body)
        _parsed(text)
        return text
    types = [*(core.vector(letter) for letter in "FIMB"), "index", "i1", "i32", "f32", core.memory("F")]
    end = core.expanded(body).rpartition("-> ")[2]
    why = ""
    for result in [end] if end in types else types:
        sink = f' ;; "sink.sink"(%r) : ({result}) -> ()'
        try:
            _parsed(dialect_kernels.module(core, body + sink))
            text = dialect_kernels.module(core, body, result)
            _parsed(text)
        except ValueError as error:
            if "expects different type" not in str(error):
                why = " ".join(str(error).split())[:200]
        else:
            return text
    raise ValueError(why)


@functools.cache
def _context() -> Any:
    from jax._src.interpreters import mlir
    from jax._src.lib import tpu

    context = mlir.make_ir_context()
    tpu.register_dialect(context)
    context.allow_unregistered_dialects = True
    return context


def _parsed(text: str) -> Any:
    from jaxlib.mlir import ir

    with _context(), ir.Location.unknown():
        try:
            module = ir.Module.parse(text)
            module.operation.verify()
        except ir.MLIRError as error:
            raise ValueError(str(error)) from None
    return module


def _compile(core: Core, text: str, chip: str) -> None:
    import jax
    import jax.numpy as jnp
    from jax._src import tpu_custom_call
    from jaxlib.mlir import ir

    from ratchet.tpu.compiler import inside

    module = _parsed(text)
    array = jax.ShapeDtypeStruct(tuple(map(int, core.shapes["F"].split("x"))), jnp.float32)
    with module.context, ir.Location.unknown():
        call = tpu_custom_call.as_tpu_kernel(
            module, array, needs_layout_passes=core.kind == TENSOR_CORE,
            collective_id=0 if "sem_barrier" in text else None,
            has_side_effects=tpu_custom_call.TpuSideEffectType.SIDE_EFFECTING,
        )  # fmt: skip
    inside.lower(call, [array], chip).compile()


def answers(chip: str, kind: str, operations: list[str]) -> Iterator[tuple[str, str]]:
    """Each operation, and ``ask``'s answer; the compiler is started anew where it dies or does not come back."""
    left = list(operations)
    spawn = multiprocessing.get_context("spawn")
    while left:
        with ProcessPoolExecutor(1, mp_context=spawn, initializer=enter, initargs=(chip,)) as pool:
            while left:
                try:
                    answer = pool.submit(ask, chip, kind, left[0]).result(PATIENCE_S)
                except (BrokenProcessPool, TimeoutError):
                    for process in multiprocessing.active_children():
                        process.kill()
                    yield left.pop(0), DIES
                    break
                yield left.pop(0), answer


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="operations; default: all")
    parser.add_argument("--on", nargs="+", choices=[*LANES], default=[*LANES], metavar="CHIP", help="default: all")
    parser.add_argument("--write", action="store_true", help="keep the answer as what is counted")
    options = parser.parse_args()
    if options.write and options.only and version() not in versions():
        parser.error(f"of JAX {version()} nothing is known: --write all operations first, without --only")
    operations = sorted(options.only or registered())
    rows: dict[str, dict[str, str]] = {name: {} for name in operations}
    for chip in options.on:
        for kind in (TENSOR_CORE, SPARSE_CORE) if LANES[chip] else (TENSOR_CORE,):
            say(f"{chip}, {kind}: {len(operations)} operations")
            for name, answer in answers(chip, kind, operations):
                rows[name][place(chip, kind)] = answer
            took = sum(not why for row in rows.values() for at, why in row.items() if at == place(chip, kind))
            say(f"  {took} compile")
    table = [{"operation": name, **{at: why or "yes" for at, why in row.items()}} for name, row in rows.items()]
    if dead := [name for name, row in rows.items() if DIES in row.values()]:
        say(f"{DIES}, so nothing is known of {' '.join(dead)}: ask again by --only, and give it a kernel or none")
    if options.write:
        keep({name: {at: not why for at, why in row.items()} for name, row in rows.items() if name not in dead})
    show_all({f"{environment.compiler_version()}: what compiles": table}, json_file=options.json)
    lowers = sum(any(not why for why in row.values()) for row in rows.values())
    print(json.dumps({"operations": len(rows), "that compile somewhere": lowers, "without an answer": len(dead)}))


if __name__ == "__main__":
    main()
