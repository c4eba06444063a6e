"""What the kernel function's signature says: grid, scalar prefetch, operands with their windows, scratch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ratchet.tpu.mlir.calls import Call
from ratchet.tpu.mlir.module import Function, KernelModule, Value

_DYNAMIC = -(2**63)
_OF_MAPS = frozenset({"function_type", "sym_name"})
_OF_KERNELS = _OF_MAPS | {
    "dimension_semantics", "iteration_bounds", "scalar_prefetch", "scratch_operands", "tpu.core_type", "window_params",
}  # fmt: skip
"""Attributes of functions that are executed."""
TENSOR_CORE = "tc"
_CORES = frozenset({TENSOR_CORE, "sc_scalar_subcore", "sc_vector_subcore"})


@dataclass(frozen=True, kw_only=True)
class Window:
    """How blocks of one operand are chosen."""

    transform: Function
    shape: tuple[int, ...]
    element: bool
    """The index map gives element offsets rather than block numbers."""
    low: tuple[int, ...]
    high: tuple[int, ...]
    """Virtual padding before and after the array, element windows only."""
    buffers: int
    """How many blocks are in VMEM at a time: with 2, one is moved while the kernel works on the other."""


@dataclass(frozen=True, kw_only=True)
class Operand:
    """One input or output of the kernel function."""

    argument: Value
    index: int
    """Position among the inputs (after dynamic bounds) or among the outputs."""
    is_output: bool
    window: Window | None
    alias: int | None
    """For an input: the output it is aliased to. For an output: the input."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One custom call, ready to be translated."""

    name: str
    module: KernelModule
    core: str
    """On which kind of core it is executed: ``TENSOR_CORE``, ``sc_scalar_subcore`` or ``sc_vector_subcore``."""
    main: Function
    bounds: tuple[int | None, ...]
    """Static grid bounds; ``None`` where the bound is an operand."""
    semantics: tuple[str, ...]
    prefetch: tuple[Value, ...]
    operands: tuple[Operand, ...]
    scratch: tuple[Value, ...]

    @property
    def outputs(self) -> int:
        return sum(operand.is_output for operand in self.operands)

    @property
    def shares_windows(self) -> bool:
        """Whether windows of an input are read from an array that the kernel writes to."""
        return any(o.alias is not None and not o.is_output and o.window is not None for o in self.operands)

    @property
    def dynamic_bounds(self) -> int:
        return sum(bound is None for bound in self.bounds)

    def coordinates(self, step: int) -> tuple[int, ...]:
        """Grid coordinates of a linear step; the linear number itself where bounds are dynamic."""
        if not self.bounds or step < 0:
            return ()
        if self.dynamic_bounds:
            return (step,)
        out = []
        for bound in reversed(self.bounds):
            assert bound is not None
            out.append(step % bound)
            step //= bound
        return tuple(out[::-1])


def describe(call: Call, module: KernelModule) -> Kernel:
    """Read the kernel function's signature, for one call of it.

    Raises:
        Refusal: ``CANNOT_VERIFY`` where the signature is not one that is known.
    """
    mains = [f for f in module.functions.values() if f.is_kernel]
    if len(mains) != 1:
        raise module.refusal(f"a module with {len(mains)} kernel functions")
    (main,) = mains
    attributes = main.attributes
    core = str(attributes.get("tpu.core_type", TENSOR_CORE)).removeprefix("#tpu.core_type<").removesuffix(">")
    if core not in _CORES or call.on_sparse_cores != (core != TENSOR_CORE):
        raise module.refusal(f"a kernel for {core}{' that is called on SparseCores' * call.on_sparse_cores}")
    for function in module.functions.values():
        if unknown := set(function.attributes) - (_OF_KERNELS if function is main else _OF_MAPS):
            raise module.refusal(f"function attribute {sorted(unknown)}")
    raw_bounds: Sequence[int] = attributes.get("iteration_bounds", ())
    bounds = tuple(None if b == _DYNAMIC else b for b in raw_bounds)
    semantics = tuple(
        str(s).removeprefix("#tpu.dimension_semantics<").removesuffix(">")
        for s in attributes.get("dimension_semantics", ())
    )[: len(bounds)]
    inputs, outputs = len(call.inputs), len(call.outputs)
    dynamic = sum(b is None for b in bounds)
    n_prefetch = int(str(attributes.get("scalar_prefetch", 0)))
    n_scratch = int(str(attributes.get("scratch_operands", 0)))
    arguments = main.body.arguments
    n_inputs = inputs - dynamic - n_prefetch
    if len(arguments) != len(bounds) + n_prefetch + n_inputs + outputs + n_scratch:
        raise module.refusal(
            f"a kernel function of {len(arguments)} arguments for {inputs} operands, {outputs} results"
        )
    at = len(bounds)
    prefetch, at = arguments[at : at + n_prefetch], at + n_prefetch
    params: Sequence[Any] = attributes.get("window_params", ({},) * (n_inputs + outputs))
    operands = []
    for i in range(n_inputs + outputs):
        is_output = i >= n_inputs
        index = i - n_inputs if is_output else i
        if is_output:
            alias = next((a - dynamic - n_prefetch for a, b in call.aliases.items() if b == index), None)
        else:
            alias = call.aliases.get(index + dynamic + n_prefetch)
        if not is_output and "semaphore" in arguments[at + i].type.dtype:
            raise module.refusal("a semaphore that is there before the kernel; wanted one of its scratch")
        operands.append(
            Operand(
                argument=arguments[at + i],
                index=index,
                is_output=is_output,
                window=_window(module, params[i]),
                alias=alias,
            )
        )
    return Kernel(
        name=call.name,
        module=module,
        core=core,
        main=main,
        bounds=bounds,
        semantics=semantics,
        prefetch=prefetch,
        operands=tuple(operands),
        scratch=arguments[len(arguments) - n_scratch :] if n_scratch else (),
    )


def _window(module: KernelModule, params: dict[str, Any]) -> Window | None:
    if not params:
        return None
    # When a window is fetched again changes speed, not values.
    unknown = set(params) - {"transform_indices", "window_bounds", "window_kind", "pipeline_mode", "revisit_mode"}
    if unknown:
        raise module.refusal(f"window attribute {sorted(unknown)}")
    if "window_bounds" not in params:
        return None  # an affine map of zeros: the whole array
    shape = tuple(params["window_bounds"])
    kind = params.get("window_kind")
    low = high = (0,) * len(shape)
    if kind is not None:
        text = str(kind)
        if not text.startswith("#tpu.element_window<["):
            raise module.refusal(f"window kind {text}")
        low, high = (
            tuple(int(n) for n in part.split(",") if n.strip())
            for part in text.removeprefix("#tpu.element_window<[").removesuffix("]>").replace(" ", "").split("],[")
        )
    return Window(
        transform=module.functions[params["transform_indices"]],
        shape=shape,
        element=kind is not None,
        low=low,
        high=high,
        buffers=_buffers(module, params),
    )


def _buffers(module: KernelModule, params: dict[str, Any]) -> int:
    mode = str(params.get("pipeline_mode", "#tpu.pipeline_mode<double_buffered>"))
    known = {"#tpu.pipeline_mode<synchronous>": 1, "#tpu.pipeline_mode<double_buffered>": 2}
    if mode not in known:
        raise module.refusal(f"pipeline mode {mode}")
    return known[mode]
