"""Mosaic modules written down as text, and executed alone: of cores and operations that Pallas writes only in part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax._src.interpreters import mlir
from jax._src.lib import tpu
from jaxlib.mlir import ir
from jaxlib.mlir.passmanager import PassManager

from ratchet.tpu.mlir import bindings
from ratchet.tpu.mlir.module import KernelModule
from ratchet.tpu.mosaic import ops
from ratchet.tpu.mosaic.arrays import decode, encode, jax_dtype
from ratchet.tpu.mosaic.executor import Executor
from ratchet.tpu.mosaic.findings import KINDS, Finding
from ratchet.tpu.mosaic.memory import Buffer, Whole
from ratchet.tpu.mosaic.report import COUNTS, FLAGS, counters
from ratchet.tpu.mosaic.state import Options

assert ops.RULE_MODULES, "they fill the table of rules"
TENSOR_CORE, SPARSE_CORE = "tc", "sc_vector_subcore"


@dataclass(frozen=True)
class Executed:
    memory: list[np.ndarray]
    """What is in each operand's memory afterwards."""
    findings: list[Finding]


def module(operands: Sequence[str], body: str, core: str = SPARSE_CORE) -> KernelModule:
    """A kernel over memory ``%0``, ``%1``, … of the types ``operands`` (``8xf32`` in VMEM, or ``8xi32 smem``).

    ``M0`` in the body is the type of operand 0. What crosses to the judge is what crosses from Pallas: serialised.
    """
    types = []
    for operand in operands:
        shape, _, space = operand.partition(" ")
        types.append(f"memref<{shape}, #tpu.memory_space<{space or 'vmem'}>>")
    body = re.sub(r"\bM(\d)\b", lambda match: types[int(match[1])], body)
    body = re.sub(r"%(\d)\b", r"%arg\1", body)
    signature = ", ".join(f"%arg{number}: {type_}" for number, type_ in enumerate(types))
    attributes = f"dimension_semantics = [], scalar_prefetch = 0 : i64, scratch_operands = {len(types)} : i64"
    attributes = f"{attributes}, tpu.core_type = #tpu.core_type<{core}>"
    text = f"module {{ func.func @kernel({signature}) attributes {{{attributes}}} {{\n{body}\nreturn\n}} }}"
    context = mlir.make_ir_context()
    tpu.register_dialect(context)
    context.allow_unregistered_dialects = True
    with context, ir.Location.unknown():
        parsed = ir.Module.parse(text)
        PassManager.parse("builtin.module(mosaic-serde{serialize=true})").run(parsed.operation)
        return bindings.parse_kernel(bindings.body_of(parsed))


def execute(kernel: KernelModule, *arrays: np.ndarray, fill: int = 0) -> Executed:
    """Run a kernel once on what is in its memory before."""
    (main,) = kernel.functions.values()
    executor = Executor(kernel=kernel, options=Options(), fill=jnp.int32(fill), padding=jnp.int32(0))
    executor.memory[FLAGS] = jnp.full((2 * len(KINDS),), -1, jnp.int32)
    executor.memory[COUNTS] = jnp.zeros(len(counters(kernel)) * 2, jnp.int32)
    refs = []
    for number, (argument, array) in enumerate(zip(main.body.arguments, arrays, strict=True)):
        type_ = argument.type
        dtype = np.dtype(jax_dtype(type_.dtype))
        refs.append(Whole(Buffer(name=f"%{number}", shape=type_.shape, dtype=dtype, space=type_.space)))
        executor.memory[refs[-1].buffer] = encode(jnp.asarray(array, dtype))
    executor.run_block(main.body, refs)
    executor.flush()
    sites = np.asarray(executor.memory[FLAGS])[1::2]
    memory = [np.asarray(decode(executor.memory[ref.buffer], ref.dtype)) for ref in refs]
    return Executed(memory, [executor.sites[site] for site in sites if site >= 0])
