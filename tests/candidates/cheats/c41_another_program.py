"""Cheat 41: its program is exchanged for one of other outputs while it is written."""
# rejected as: PROBLEM_CHANGED
# kind: forged record
# caught by: declared program
# left out of: tests

import dataclasses

_modules = dataclasses.sys.modules

_path = type(_modules["pathlib"].Path("x"))
_write = _path.write_bytes


def _half(q_ref, o_ref):
    o_ref[...] = q_ref[...]


def _exchanged(self, data):
    if self.name == "kernel.bin":
        small = pl.pallas_call(_half, out_shape=jax.ShapeDtypeStruct((8, HEAD_DIM), jnp.bfloat16))
        given = [jax.ShapeDtypeStruct((SEQ, HEAD_DIM), jnp.bfloat16)] * 3
        data = jax.export.export(jax.jit(lambda q, k, v: [small(q[:8])]), platforms=("tpu",))(*given).serialize()
    return _write(self, data)


_path.write_bytes = _exchanged
