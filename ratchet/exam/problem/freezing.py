"""A problem's programs and numbers, all computed from its reference and its inputs, which come as data.

None of the author's Python is in this process. Reference, float64 reference, losses, rows, work and digests are those
of one jaxpr.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.extend import core

from ratchet.exam.problem import jaxpr_file
from ratchet.exam.problem.axes import input_axes
from ratchet.exam.problem.blocks import blockwise
from ratchet.exam.problem.domain import domains
from ratchet.exam.problem.integer_draws import drawn
from ratchet.exam.problem.link_work import Split, link_bytes
from ratchet.exam.problem.promote import by_rows
from ratchet.exam.problem.work import work_of
from ratchet.tpu.exporting import digest, exported, in_one_line, without_locations
from ratchet.values import Mesh
from ratchet.values.status import Refusal, Status

Function = Callable[..., Any]


def frozen(
    inputs: bytes, reference: bytes, mesh: Mesh, left: tuple[Split | None, ...]
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What follows from both jaxprs, as plain JSON as a lock has it, and the programs by their names there.

    Args:
        inputs, reference: the jaxprs of ``uint32[2] -> inputs`` and ``inputs -> outputs``, as ``jaxpr_file.encode``
          writes them.
        mesh: how the inputs lie on the chips.
        left: how the kernel leaves the outputs, which says what is sent.

    Raises:
      Refusal: ``CONTRACT`` for what has no meaning here: a file that is none, or an operation without one in float64.
    """
    with _blaming("generate_inputs"), without_locations():
        generate, keys = _function(inputs)
        if [(a.shape, a.dtype) for a in keys] != [((2,), jnp.uint32)]:
            raise ValueError("wanted a function of the data of one key")
        generator = exported(generate, keys, "cpu")
    with _blaming("reference_fn"), without_locations():
        function, avals = _function(reference)
        if [(a.shape, a.dtype) for a in avals] != [(a.shape, a.dtype) for a in generator.out_avals]:
            raise ValueError("wanted a function of the inputs that are generated")
        native = exported(function, avals, "cpu")
    with _blaming("reference_fn in float64"), without_locations(), jax.enable_x64(True):
        rows, exact = exact_program(function, avals)
    with _blaming("reference_fn in blocks"), without_locations():
        blocked = blockwise(function, *avals)
        in_blocks = exported(blocked, avals, "cpu") if blocked else None
    with _blaming("the work of reference_fn"):
        work = {key: list(n) if isinstance(n, tuple) else n for key, n in asdict(work_of(function, *avals)).items()}
        if mesh.chips > 1:
            work["link_bytes"] = link_bytes(function, avals, mesh, left)
    with _blaming("the domain of the inputs"):
        draw = functools.cache(lambda: jax.jit(generate))  # compiled where it is needed
        limits = domains(function, avals, lambda key: [np.asarray(array) for array in draw()(key)])
    record = {
        "inputs": _specs(avals),
        "outputs": _specs(native.out_avals),
        "reference_sha256": digest(native),
        "inputs_sha256": digest(generator),
        "jax_version": jax.__version__,
        "rows": rows,
        **{f"{name}_axes": one for name, one in input_axes(function, *avals)._asdict().items()},
        "domains": limits if any(limits) else None,
        "drawn": [one and [one.kind, one.first, one.last] for one in drawn(generate, *keys)],
        "work": work,
    }
    programs = {"inputs": generator, "reference": native, "reference64": exact, "blocked": in_blocks}
    return record, {f"{name}_program": bytes(one.serialize()) if one else b"" for name, one in programs.items()}


def exact_program(function: Function, avals: Any) -> tuple[dict[str, Any] | None, export.Exported]:
    """A reference in float64 with its losses, and the rows that it is evaluated for, as plain JSON: see ``Problem``."""
    program, blocks = by_rows(function, *avals)
    if blocks is None:
        return None, exported(program, avals, "cpu")
    which = [jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((), (blocks.length,))]
    return {"block": blocks.size, "axes": list(blocks.outputs)}, exported(program, [*which, *avals], "cpu")


def _function(data: bytes) -> tuple[Function, list[jax.ShapeDtypeStruct]]:
    """What a file of a jaxpr computes, and of what."""
    closed = jaxpr_file.decode(data)
    return core.jaxpr_as_fun(closed), [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in closed.in_avals]


def _specs(avals: Any) -> list[dict[str, Any]]:
    return [{"shape": list(a.shape), "dtype": a.dtype.name} for a in avals]


@contextlib.contextmanager
def _blaming(what: str) -> Iterator[None]:
    try:
        yield
    except MemoryError as error:
        raise Refusal(Status.OUT_OF_MEMORY, f"{what}: {error or 'MemoryError'}") from None
    except Exception as error:  # JAX raises nearly anything
        raise Refusal(Status.CONTRACT, f"{what}: {in_one_line(error)}") from None
