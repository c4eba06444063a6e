"""Compiles kernel files for a chip that is not there and keeps the schedule machine's input.

    python -m benchmarks.compiled OUT FILE... [--profiled] [--json FILE]

``--profiled`` takes bundles from a profile, as a verdict does of a large program: without those of the top level.
Writes ``OUT/<stem>/`` for every file: the dumps and ``optimized.hlo.pb``. A process of its own, because the compiler
takes its flags once.
"""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.lib.command import command
from benchmarks.lib.sources import names_of
from benchmarks.lib.table import show
from ratchet.tpu.chips import V5E
from ratchet.tpu.compiler import environment


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--profiled", action="store_true", help="take bundles from a profile, not from dumps")
    options = parser.parse_args()
    environment.enter(V5E, options.out / "dumps", profiles=options.profiled)
    import jax

    from ratchet.tpu.compiler.fast.inside import profiled
    from ratchet.tpu.compiler.inside import clear_dumps, lower, move_dumps, optimised
    from ratchet.tpu.dump.files import OPTIMIZED
    from ratchet.tpu.exporting import lines_apart

    rows = []
    for file in options.files:
        start, folder = time.monotonic(), options.out / file.stem
        kernel = names_of(file.read_text(), str(file))
        inputs = jax.eval_shape(kernel["generate_inputs"], jax.random.key(0))
        clear_dumps()
        with lines_apart():
            lowered = lower(kernel["kernel_fn"], inputs, V5E.name)
        compiled = profiled(lowered) if options.profiled else lowered.compile()
        move_dumps(folder)
        (folder / OPTIMIZED).write_bytes(optimised(compiled).as_serialized_hlo_module_proto())
        rows.append({"program": file.stem, "folder": str(folder), "seconds": time.monotonic() - start})
    show(f"compiled for {V5E.name}", rows, json_file=options.json)


if __name__ == "__main__":
    main()
