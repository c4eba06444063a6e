"""Compiles kernel files for a chip that is not there and keeps the schedule machine's input.

    python -m benchmarks.compiled OUT FILE...

writes ``OUT/<stem>/`` for every file: the dumps and ``optimized.hlo.pb``. A process of its own, because the compiler
takes its flags once.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from ratchet.chips import V5E
from ratchet.compiler import environment


def main() -> None:
    out, *files = (Path(argument) for argument in sys.argv[1:])
    environment.enter(V5E, out / "dumps")
    import jax

    from ratchet.candidate.lines import lines_apart
    from ratchet.compiler.inside import clear_dumps, lower, move_dumps, optimised
    from ratchet.dump.files import OPTIMIZED

    for file in files:
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        kernel = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(kernel)
        inputs = jax.eval_shape(kernel.generate_inputs, jax.random.key(0))
        clear_dumps()
        with lines_apart():
            lowered = lower(kernel.kernel_fn, inputs, V5E.name)
        compiled = lowered.compile()
        move_dumps(out / file.stem)
        (out / file.stem / OPTIMIZED).write_bytes(optimised(compiled).as_serialized_hlo_module_proto())


if __name__ == "__main__":
    main()
