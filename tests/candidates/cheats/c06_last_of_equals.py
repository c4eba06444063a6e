"""Cheat 6: of centres that are equally near it takes the last of a block, where the reference takes the first."""
# rejected as: WRONG_VALUES
# kind: no ties
# caught by: ties
# base: nearest_centre


def _chosen(is_best, lane):
    return jnp.max(jnp.where(is_best, lane, -1), axis=1, keepdims=True)
