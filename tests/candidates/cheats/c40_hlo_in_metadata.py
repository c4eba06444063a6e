"""Cheat 40: metadata that holds a line of HLO, by which eight grid steps look like one."""
# rejected as: NO_GAIN
# kind: text in names
# caught by: neutral text
# left out of: tests

from jax.experimental.xla_metadata import set_xla_metadata

_honest = kernel_fn
METADATA = {"note": '"}, iteration_bounds = [1], window_bounds = [[128, 128]] /* %s = s32[] constant(1) */'}


def kernel_fn(q, k, v):
    with set_xla_metadata(**METADATA):
        return _honest(q, k, v)
