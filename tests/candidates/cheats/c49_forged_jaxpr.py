"""Cheat 49: exports one reference, and writes another down as data."""
# rejected as: NON_DETERMINISTIC
# kind: forged problem
# caught by: problem from data
# base: row_softmax
# problem: its own

import dataclasses

_file = dataclasses.sys.modules["ratchet.exam.problem.jaxpr_file"]
_encode = _file.encode


def _other(closed):
    half = jax.make_jaxpr(lambda x: [0.5 * x])(*closed.in_avals)
    return _encode(half if [a.shape for a in closed.in_avals] == [(N, D)] else closed)


_file.encode = _other


def _kernel(x, o):
    o[...] = 0.5 * x[...]
