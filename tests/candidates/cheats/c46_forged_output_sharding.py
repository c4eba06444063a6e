"""Cheat 46: leaves its output split over the chips, where all have to hold all of it."""
# rejected as: PROBLEM_CHANGED
# kind: forged sharding
# caught by: frozen problem
# base: all_gather


def kernel_fn(x):
    return jax.shard_map(lambda x: x * 1.0, in_specs=P("chip"), out_specs=P("chip"), check_vma=False)(x)
