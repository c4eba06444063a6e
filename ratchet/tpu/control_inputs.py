"""What steers a program on inputs that are known: integers among them, and tables that XLA computes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ratchet.tpu.compiler.tokens import tokenise
from ratchet.tpu.computed_operands import Steering, check_shapes, wanted
from ratchet.tpu.dump.computed_operands import computed_operands
from ratchet.tpu.dump.files import load_hlo
from ratchet.tpu.mosaic import computed_operands as beside
from ratchet.tpu.mosaic.run import Options, translated
from ratchet.values import Program
from ratchet.values.status import Refusal, Status

_MOST = 1 << 20
"""Elements of an array that steers, at most."""


def integers(leaves: Sequence[Any]) -> dict[int | str, Any]:
    """Integers that have values, by position; a ``jax.ShapeDtypeStruct`` has none."""
    given = {place: np.asarray(leaf) for place, leaf in enumerate(leaves) if not isinstance(leaf, jax.ShapeDtypeStruct)}
    return {
        place: leaf.astype(jax.dtypes.canonicalize_dtype(leaf.dtype))
        for place, leaf in given.items()
        if leaf.dtype.kind in "biu" and leaf.size <= _MOST
    }


def tables(program: bytes, compiled: Program, leaves: Sequence[Any]) -> Steering:
    """Operands of kernels that XLA computes beside them, by executing ``program`` on ``leaves``.

    Args:
        program: the exported program that ``compiled`` was compiled from.
        compiled: its folder still exists.
        leaves: all inputs, in order.

    Returns:
        The operands by ``"launch:place"``; nothing where there are none, where an input has no values, or where the
        program cannot be executed: they may steer, and need not.

    Raises:
        Refusal: ``SCHEDULE_UNKNOWN`` for a call that is executed more than once with other tables.
    """
    operands = computed_operands(load_hlo(compiled.dump_dir))
    if not operands or any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves):
        return {}
    try:
        loaded = translated(tokenise(program)[0], Options())
    except Refusal as refusal:
        if refusal.status is Status.CANNOT_VERIFY:
            return {}
        raise
    with jax.default_device(jax.devices("cpu")[0]):
        inputs = [np.asarray(jax.numpy.asarray(leaf)) for leaf in leaves]
        ((taken,),) = beside.operands(loaded, [inputs], wanted(operands))
    steering: Steering = {f"{one.launch}:{one.place}": taken[one.site, one.number] for one in operands}
    check_shapes(operands, steering)
    return steering
