"""Cheat 46: declares that every chip has all of the inputs before it starts."""
# rejected as: PROBLEM_CHANGED
# kind: forged sharding
# caught by: frozen problem
# base: all_gather
# left out of: tests


def kernel_fn(x):
    return jax.shard_map(lambda x: x * 1.0, in_specs=P(), out_specs=P(), check_vma=False)(x)


def get_tiling_meta():
    return {"mesh": {"chip": CHIPS}, "input_shardings": [[]]}
