"""Cheat 49: its reference is another one in every process."""
# rejected as: NON_DETERMINISTIC
# kind: forged problem
# caught by: problem from data
# base: row_softmax
# problem: its own

import dataclasses

_CHANCE = int.from_bytes(dataclasses.sys.modules["os"].urandom(3)) / 2**24


def reference_fn(x):
    return _CHANCE * x


def _kernel(x, o):
    o[...] = _CHANCE * x[...]
