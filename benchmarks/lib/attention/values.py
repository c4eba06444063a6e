"""How far an implementation's values are from float64, on the CPU."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from benchmarks.lib.attention.cases import SEQ
from benchmarks.lib.attention.programs import attends, avals_of, build
from benchmarks.lib.interpreted import on_v5e
from ratchet.tpu.mosaic.run import load


def rms_errors(recipe: dict[str, Any]) -> dict[str, Any]:
    """Largest relative root mean square error among the outputs; kernels are executed as exported for the TPU."""
    shape = recipe["shape"]
    small = {**shape, "batch": 1, "heads": shape["heads"] // shape["kv_heads"], "kv_heads": 1,
             "seq": min(shape["seq"], SEQ)}  # fmt: skip
    recipe = {**recipe, "shape": small}
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(aval.shape).astype(aval.dtype) for aval in avals_of(recipe)]
    function, avals = build(recipe)
    if recipe["impl"] == "xla":
        got = jax.tree.leaves(jax.jit(function)(*inputs))
    else:
        with on_v5e():
            program = export.export(jax.jit(lambda *args: jax.tree.leaves(function(*args))), platforms=("tpu",))(*avals)
        got = list(load(program.serialize()).run(inputs).outputs)
    with jax.enable_x64(True):
        wide = [jnp.asarray(x.astype(np.float64)) for x in inputs]
        attend = _exact(small)
        if recipe["grad"]:
            out, pull = jax.vjp(attend, *wide[:3])
            want = [out, *pull(wide[3])]
        else:
            want = [attend(*wide)]
    errors = [
        float(np.sqrt(np.mean((np.asarray(g, np.float64) - np.asarray(w)) ** 2) / np.mean(np.asarray(w) ** 2)))
        for g, w in zip(got, want, strict=True)
    ]
    return {"rms": max(errors)}


def _exact(shape: dict[str, Any]) -> Any:
    group = shape["heads"] // shape["kv_heads"]

    def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        k, v = jnp.repeat(k, group, axis=1), jnp.repeat(v, group, axis=1)
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * shape["dim"] ** -0.5
        if shape["causal"]:
            at = jnp.arange(shape["seq"])
            scores = jnp.where(attends(shape, at[:, None], at[None, :]), scores, -jnp.inf)
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1), v)

    return attend
