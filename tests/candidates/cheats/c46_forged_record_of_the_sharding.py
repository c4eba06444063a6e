"""Cheat 46: does no communication, and its record says that all chips hold all of the output."""
# rejected as: PROBLEM_CHANGED
# kind: forged record
# caught by: frozen problem, declared program
# base: all_gather
# left out of: tests

import dataclasses

_json = dataclasses.sys.modules["json"]
_written = _json.dumps


def _forged(record, **options):
    if isinstance(record, dict) and "output_shardings" in record:
        record = record | {"output_shardings": [[None, None]]}
    return _written(record, **options)


_json.dumps = _forged


def _copy(x_ref, o_ref):
    o_ref[...] = x_ref[...]


def _own(x):
    whole = pl.BlockSpec(memory_space=pltpu.VMEM)
    return pl.pallas_call(_copy, out_shape=jax.ShapeDtypeStruct((N, D), x.dtype), in_specs=[whole], out_specs=whole)(x)


def kernel_fn(x):
    return jax.shard_map(_own, in_specs=P("chip"), out_specs=P("chip"), check_vma=False)(x)
