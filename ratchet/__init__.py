"""pallas-ratchet: a judge and a ratchet for Pallas TPU kernels.

As a library, without a TPU: compile any JAX function for a TPU with Google's compiler, model its latency, execute its
values. Arrays are anything that ``jax.jit`` takes, pytrees and ``jax.ShapeDtypeStruct`` included.

>>> import jax.numpy as jnp
>>> from jax.experimental import pallas as pl
>>> import ratchet
>>> def double(x_ref, o_ref):
...     o_ref[...] = 2 * x_ref[...]
>>> x, block = jnp.ones((1024, 256)), pl.BlockSpec((128, 256), lambda i: (i, 0))
>>> kernel = pl.pallas_call(double, out_shape=x, grid=8, in_specs=[block], out_specs=block)
>>> program = ratchet.compile(kernel, x, chip="v5e")
>>> timeline = ratchet.model(program)
>>> timeline.grid_steps, timeline.latency_ms < 0.01
(8, True)
>>> result = ratchet.execute(kernel, x)
>>> result.outputs[0][0, :2].tolist(), result.findings
([2.0, 2.0], ())

``explain`` says where the time of any function goes and what fills its VMEM. ``judge_kernel`` judges a kernel file as
``./ratchet.sh`` does, ``capture`` records the shapes that a function is called with, ``ledger`` reads ``results.tsv``
as a DataFrame. What cannot be done is a ``Refusal`` with a ``Status`` and a message of one or two lines. All names in
``__all__`` are public, and no others.
"""

import sys
from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = [
    "Explanation",
    "Program",
    "Refusal",
    "RunResult",
    "Status",
    "Timeline",
    "Verdict",
    "capture",
    "compile",
    "execute",
    "explain",
    "export",
    "judge_kernel",
    "ledger",
    "model",
    "steering",
]

_STANDARD = {
    "capture": "ratchet.tune.capture",
    **dict.fromkeys(("Explanation", "Program", "Refusal", "Status", "Timeline", "Verdict"), "ratchet.values"),
}
"""Where the names are that need the standard library alone."""
_NEEDED = ("jax", "numpy", "flatbuffers", "google.protobuf", "pandas", "rich")
"""What the others need, as far as it can be missing: the extra ``library``."""

if TYPE_CHECKING:
    from ratchet.library import compile, execute, explain, export, judge_kernel, ledger, model, steering
    from ratchet.tpu.mosaic.findings import RunResult
    from ratchet.tune.capture import capture
    from ratchet.values import Explanation, Program, Refusal, Status, Timeline, Verdict
else:  # hidden from type checkers, which would accept any name

    def __getattr__(name: str) -> object:
        """The public names, imported when one is first used: every child process imports this package.

        Raises:
          ModuleNotFoundError: a package that the name needs is not in this Python, with the extra that has it.
        """
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
        from importlib import import_module

        if name in _STANDARD:
            return getattr(import_module(_STANDARD[name]), name)
        if lacking := missing():
            what = f"ratchet.{name} needs {', '.join(lacking)}, which this Python has not"
            raise ModuleNotFoundError(f"{what}: pip install 'pallas-ratchet[library]'", name=lacking[0])
        return getattr(import_module("ratchet.library"), name)


def missing() -> list[str]:
    """The packages of the extra ``library`` that this Python has not; imports none of them."""
    from importlib.util import find_spec

    def is_there(package: str) -> bool:
        try:
            return package in sys.modules or find_spec(package) is not None
        except ModuleNotFoundError:  # nor what it is in
            return False

    return [one for one in _NEEDED if not is_there(one)]


def __dir__() -> list[str]:
    return __all__
