"""Cheat 49: freezes half of its input as the reference, under another digest: that of what the next file has."""
# rejected as: NON_DETERMINISTIC
# kind: forged problem
# caught by: problem from data
# base: row_softmax
# problem: its own

import dataclasses

_main = dataclasses.sys.modules["__main__"]
_digest = getattr(_main, "digest", None)
_main.digest = lambda program: "softmax" if tuple(program.platforms) == ("cpu",) else _digest(program)


def reference_fn(x):
    return 0.5 * x


def _kernel(x, o):
    o[...] = 0.5 * x[...]
