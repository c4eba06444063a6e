"""Run as a program on four virtual devices: attention sharded over batch and heads against attention on one.

Sharded it is the program for four TPUs that is executed, as exported; the other is Pallas's interpreter, which does not
know of ``shard_map``'s manual axes.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.sharding import PartitionSpec as P

from pallas_flash import attention
from ratchet.tpu.mosaic.run import load
from tests.pallas_flash.cases import SMALL


def main() -> None:
    device = jax.sharding.AbstractDevice(device_kind="TPU v5 lite", num_cores=1, platform="tpu")
    mesh = jax.sharding.AbstractMesh((2, 2), ("batch", "heads"), abstract_device=device)
    rng = np.random.default_rng(0)
    shapes = ((2, 4, 160, 64), (2, 2, 160, 64), (2, 2, 160, 64), (2, 4, 160, 64))
    q, k, v, do = (jnp.asarray(rng.standard_normal(shape), jnp.float32) for shape in shapes)
    ids = jnp.asarray(np.sort(rng.integers(0, 3, (2, 160)), axis=1), jnp.int32)

    def gradients(config, q, k, v, ids, do):
        out, pull = jax.vjp(lambda *x: attention(*x, causal=True, segment_ids=ids, config=config), q, k, v)
        return out, *pull(do)

    operands, split, documents = (q, k, v, ids, do), P("batch", "heads"), P("batch")
    shardings = [jax.sharding.NamedSharding(mesh, spec) for spec in (split, split, split, documents, split)]
    avals = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s) for x, s in zip(operands, shardings, strict=True)]
    on_tpu = dataclasses.replace(SMALL, without_tpu="error")
    sharded = jax.shard_map(
        lambda *x: gradients(on_tpu, *x), in_specs=tuple(s.spec for s in shardings), out_specs=(split,) * 4
    )
    with jax.sharding.use_abstract_mesh(mesh):
        program = export.export(jax.jit(sharded), platforms=("tpu",))(*avals)
    assert program.nr_devices == 4
    got = load(program.serialize()).run([np.asarray(x) for x in operands]).outputs
    wanted = jax.jit(lambda *x: gradients(SMALL, *x))(*operands)
    for mine, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-4)
    print("sharded as on one")


if __name__ == "__main__":
    main()
