"""The room's door: an exported TPU program in, its values and findings out."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax

from ratchet.process.concurrency.background import Meanwhile
from ratchet.process.concurrency.once import once
from ratchet.tpu.mlir.bindings import parse_kernel, repack, stablehlo_of
from ratchet.tpu.mlir.calls import kernel_bodies, walk
from ratchet.tpu.mlir.module import KernelModule
from ratchet.tpu.mlir.signature import Kernel, describe
from ratchet.tpu.mosaic import chip_races, counting, events, hazards, lowering
from ratchet.tpu.mosaic.findings import KINDS, Finding, Site
from ratchet.tpu.mosaic.grid import run_kernel
from ratchet.tpu.mosaic.memory import decode, encode, kept_as
from ratchet.tpu.mosaic.ops import arith, control, dma, pack, vector
from ratchet.tpu.mosaic.ops import memory as ops_memory
from ratchet.tpu.mosaic.read_digests import CELLS
from ratchet.tpu.mosaic.report import Layout, merge_reports
from ratchet.tpu.mosaic.result import RunResult
from ratchet.tpu.mosaic.rules import DMA_OPS, is_remote, root_of
from ratchet.tpu.mosaic.state import Options, data_written
from ratchet.values import ArraySpec
from ratchet.values.control import ControlFlow
from ratchet.values.status import Refusal, Status

RULE_MODULES = (arith, control, dma, ops_memory, pack, vector)
"""Importing them fills the table of operations."""

AS_WRITTEN: dict[str, bool | str] = {"xla_allow_excess_precision": False, "xla_backend_optimization_level": "1"}
"""Without the first XLA keeps float32 between bfloat16 operations, and a kernel looks better than it is. With the
second it compiles faster what runs no slower."""

SCATTERED = 1
"""The seed of the other order of steps that programs are checked with."""
_LATE_TARGETS = 1 << 23
"""Elements that DMAs may write where ``executed`` is the late translation: each wait passes over all of them."""
_NO_WORD = -(2**31)
"""A word of the report that only another device has: of all devices' words the largest counts."""

_ON_SEVERAL = threading.Lock()

Modules = dict[bytes, KernelModule]
"""Kernels by their serialised bodies."""

_BRANCHING = frozenset({"stablehlo.case", "stablehlo.if", "stablehlo.while"})


@contextlib.contextmanager
def taking_turns(devices: int) -> Iterator[None]:
    """Around an execution on so many devices. Each has one thread: two executions might wait for each other there."""
    with _ON_SEVERAL if devices > 1 else contextlib.nullcontext():
        yield


@dataclass(frozen=True, kw_only=True)
class Placed:
    """The inputs of a program on all devices that it is sharded over, as memory keeps them."""

    arrays: tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Translation:
    """A program in which every kernel is what executes it on the CPU."""

    exported: Any
    """It takes a configuration besides, and gives a report."""
    kernels: Sequence[Kernel]
    sites: Sequence[list[Site]]
    """Of each kernel what it may report."""


class Loaded:
    """A TPU program, translated and compiled for the CPU. Run it as often as needed; it compiles once."""

    def __init__(
        self, exported: Any, options: Options, *, modules: Modules | None = None, late_first: bool = False
    ) -> None:
        _check_program(exported)
        self.inputs = tuple(_spec(aval) for aval in exported.in_avals)
        self.outputs = tuple(_spec(aval) for aval in exported.out_avals)
        self._options = options
        self._original = exported
        self._module = stablehlo_of(exported)
        self._has_branches = any(op.name in _BRANCHING for op in walk(self._module.operation))
        self._modules = modules or {body: parse_kernel(body) for body in kernel_bodies(self._module)}
        self._variants: dict[Options, Loaded] = {options: self}
        self._meanwhile: Meanwhile[Loaded] = Meanwhile()
        self._late = self._begun_late() if late_first else None
        sends = any(is_remote(op) for kernel in self._modules.values() for op in kernel.operations())
        self._layout = Layout(
            counts=max(map(counting.width, self._modules.values()), default=0),
            digests=options.witness,
            chips=exported.nr_devices if options.late_dma and sends else 0,
        )
        *_, self._width = self._layout.parts
        if self._late is None:
            assert self._translation  # what cannot be translated is refused here

    @once
    def _translation(self) -> Translation:
        """Made once, where it is needed: where only the late one is executed, no other is.

        Raises:
            Refusal: as :func:`load`.
        """
        kernels: list[Kernel] = []
        sites: list[list[Site]] = []

        def translate(number: int, call: lowering.Call) -> Any:
            del number
            kernels.append(self.kernel(call))
            sites.append([])
            return self.function(kernels[-1], call, sites[-1])

        given, merge = self._original, functools.partial(merge_reports, layout=self._layout)
        with _readable():
            count = lowering.lower_kernels(self._module, translate, self._width, merge)
        config = jax.core.ShapedArray((lowering.CONFIG_WIDTH,), jnp.int32)
        report = jax.core.ShapedArray((max(count, 1) * self._width,), jnp.int32)
        exported = repack(given, self._module, [*given.in_avals, config], [*given.out_avals, report])
        return Translation(exported=exported, kernels=kernels, sites=sites)

    @property
    def kernels(self) -> Sequence[Kernel]:
        """The same in every translation."""
        return (self._late or self)._translation.kernels

    @property
    def _exported(self) -> Any:
        return self._translation.exported

    @property
    def covered(self) -> tuple[str, ...]:
        """Names of the operations of the kernels, sorted."""
        return tuple(sorted({op.name for kernel in self.kernels for op in kernel.module.operations()}))

    @property
    def has_orders(self) -> bool:
        """Whether grid dimensions are parallel: their steps may run in any order."""
        return any("parallel" in semantics for kernel in self.kernels for semantics in kernel.semantics)

    @property
    def modules_sha256(self) -> tuple[str, ...]:
        """Digests of the serialised Mosaic modules that are executed, sorted."""
        return tuple(sorted(hashlib.sha256(body).hexdigest() for body in self._modules))

    @property
    def is_steered(self) -> bool:
        """Whether scalars that are read from memory may decide what the program does."""
        by_scalars = any(kernel.prefetch or kernel.dynamic_bounds for kernel in self.kernels)
        return self._has_branches or by_scalars or "memref.load" in self.covered

    @property
    def sha256(self) -> str:
        """Digest of the program's code: its operations with what they are marked with."""
        return hashlib.sha256(self._original.mlir_module_serialized).hexdigest()

    @property
    def module_version(self) -> int:
        """Largest version of the kernels' ``stable_mosaic`` modules; 0 for a program without kernels."""
        return max((kernel.module.version for kernel in self.kernels), default=0)

    @property
    def exported(self) -> Any:
        """The program as it was given, a ``jax.export`` artefact."""
        return self._original

    def kernel(self, call: lowering.Call) -> Kernel:
        """What is called, one of this program's kernels."""
        return describe(call.name, self._modules[call.body], len(call.inputs), len(call.outputs), call.aliases)

    def function(self, kernel: Kernel, call: lowering.Call, sites: list[Site]) -> Any:
        """A call as a JAX function ``(config, *operands) -> (results, report)``; ``sites`` gets what it may report."""
        types = [(tuple(aval.shape), np.dtype(aval.dtype)) for aval in call.outputs]
        is_sending = any(map(is_remote, kernel.module.operations()))
        *_, own, width = self._layout.parts

        def one(config: Any, *operands: Any, device: Any = None, axes: tuple[str, ...] = ()) -> Any:
            return run_kernel(
                kernel,
                operands,
                types,
                config=config,
                options=self._options,
                sites=sites,
                counted=self._layout.counts,
                device=device,
                devices=devices,
                axes=axes,
                logs=bool(self._layout.chips) and device is not None,
                behind_barrier=not call.skips_barrier,
            )

        def alone(config: Any, *operands: Any) -> Any:
            outputs, report = one(config, *operands)
            return outputs, jnp.pad(report, (0, width - own))

        devices = math.prod(size for _, size in call.mesh)
        own_barrier = {"tpu.device_id", "tpu.sem_barrier"} & {op.name for op in kernel.module.operations()}
        if call.skips_barrier and "tpu.sem_barrier" not in own_barrier and is_sending:
            raise Refusal(
                Status.MEMORY_HAZARD,
                f"kernel {call.name} writes into other chips without a barrier before: it skips the compiler's barrier "
                "(skip_device_barrier) and has none of its own (pltpu.get_barrier_semaphore)",
            )
        if not call.mesh or not (call.has_communication or own_barrier or is_sending):
            return alone

        def run(config: Any, *operands: Any) -> Any:
            axes = tuple(name for name, _ in call.mesh)
            mine = lax.axis_index(axes)
            outputs, report = one(config, *operands, device=mine, axes=axes)
            logs = jnp.full((self._layout.chips, events.WORDS), _NO_WORD, jnp.int32)  # others have those of others
            if self._layout.chips:
                logs = lax.dynamic_update_slice(logs, report[None, own:], (mine, jnp.int32(0)))
            report = jnp.concatenate([report[:own], logs.reshape(-1)])
            return outputs, jnp.pad(report, (0, width - report.shape[0]))

        return run

    def run(
        self, inputs: Sequence[np.ndarray] | Placed, *, seed: int = 0, fill: int = 0, padding: int | None = None
    ) -> RunResult:
        """Execute the program once.

        Args:
            inputs: One array per input, of the declared shape and dtype; or what ``place`` made of them.
            seed: Order of the steps of parallel grid dimensions: 0 is lexicographic, others are scattered.
            fill: What unwritten memory holds: 0 is NaN (an odd number for integers), others are other numbers.
            padding: The same for what is past the ragged edges of inputs; ``fill`` unless it is given.

        Raises:
            Refusal: as ``place``.
        """
        start = time.perf_counter()
        held = inputs if isinstance(inputs, Placed) else self.place(inputs)
        arguments = self.arguments(held, np.array([seed, fill, fill if padding is None else padding], np.int32))
        compiled = self._compiled
        with taking_turns(self._original.nr_devices):
            *outputs, report = jax.block_until_ready(compiled(*arguments))
        holders = [_as_held(output, spec) for output, spec in zip(outputs, self.outputs, strict=True)]
        count = max(map(len, holders), default=1)
        first, *others = [tuple(copies[min(n, len(copies) - 1)] for copies in holders) for n in range(count)]
        _, digests, logs, _ = self._layout.parts
        by_kernel = np.asarray(report).reshape(-1, self._width)[: len(self.kernels)]
        return RunResult(
            outputs=first,
            findings=self._findings(by_kernel) or self._disturbed(by_kernel),
            seconds=time.perf_counter() - start,
            replicas=tuple(others),
            control=self._control(by_kernel),
            witness=tuple(row[digests:logs] for row in by_kernel) if self._options.witness else (),
        )

    def compiled(self) -> Loaded:
        """Compiles it now, in this thread, and not where it is first run; returns itself."""
        assert self._compiled
        return self

    @once
    def _compiled(self) -> Any:
        pairs = zip(self._exported.in_avals, self._shardings(), strict=True)
        arguments = [jax.ShapeDtypeStruct(aval.shape, kept_as(aval.dtype), sharding=where) for aval, where in pairs]
        return jax.jit(on_kept(self._exported)).lower(*arguments).compile(AS_WRITTEN)

    def place(self, inputs: Sequence[np.ndarray]) -> Placed:
        """Put inputs where the program is executed, once for several executions, also of its other translations.

        Raises:
            Refusal: ``USAGE`` if the inputs do not match, ``INFRASTRUCTURE`` if this process has too few devices.
        """
        arrays = [np.asarray(array) for array in inputs]
        got = tuple(ArraySpec(shape=a.shape, dtype=a.dtype.name) for a in arrays)
        if got != self.inputs:
            raise Refusal(
                Status.USAGE,
                f"inputs {', '.join(map(str, got))} where the program takes {', '.join(map(str, self.inputs))}",
            )
        *where, _ = self._shardings()
        kept = [array.view(kept_as(array.dtype)) for array in arrays]
        return Placed(arrays=tuple(jax.device_put(*pair) for pair in zip(kept, where, strict=True)))

    def arguments(self, placed: Placed, config: np.ndarray) -> list[Any]:
        """What an execution takes: inputs, and its configuration on all devices."""
        *_, everywhere = self._shardings()
        return [*placed.arrays, jax.device_put(config, everywhere)]

    def _shardings(self) -> list[Any]:
        """Where each argument is, the configuration last; None for a program on one device."""
        wanted = self._original.nr_devices
        if wanted == 1:
            return [None] * (len(self.inputs) + 1)
        devices = jax.devices("cpu")
        if len(devices) < wanted:
            raise Refusal(
                Status.INFRASTRUCTURE,
                f"the program is for {wanted} devices and this process has {len(devices)}: "
                f"set XLA_FLAGS=--xla_force_host_platform_device_count={wanted} before importing jax",
            )
        whole = [s.mesh for s in self._exported._in_named_shardings if s is not None] or None
        names, sizes = (whole[0].axis_names, whole[0].axis_sizes) if whole else (("devices",), (wanted,))
        mesh = jax.sharding.Mesh(np.array(devices[:wanted]).reshape(sizes), names)
        nowhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        return [s or nowhere for s in self._exported.in_shardings_jax(mesh)]

    def begin_check(self) -> None:
        """Prepare beside what comes next for ``check``."""
        hazards.begin(self)

    def check(self, inputs: Sequence[np.ndarray], *, seed: int = SCATTERED, at_once: bool = False) -> RunResult:
        """Execute the program, and again with what must not matter changed (see ``hazards.check``)."""
        return hazards.check(self, inputs, seed=seed, at_once=at_once)

    @once
    def executed(self) -> Loaded:
        """What is executed where only values count: this program, or its translation in which DMAs arrive late.

        The latter gives the same if the kernel waits for what it reads, and is needed to know that. It is slower where
        much memory is written by DMAs. Chips that send to each other have to be right in both.
        """
        targets = {root_of(value) for kernel in self.kernels for value in data_written(kernel.module)}
        size = sum(math.prod(value.type.shape) for value in targets)
        if not targets or size > _LATE_TARGETS or self._original.nr_devices > 1:
            return self
        return self.variant(late_dma=True)

    def variant(self, *, late_dma: bool = False, late_windows: bool = False, witness: bool = False) -> Loaded:
        """The same program, translated otherwise; made once (see ``executor.Options``)."""
        options = self._varied(late_dma=late_dma, late_windows=late_windows, witness=witness)
        if options not in self._variants:
            self._variants[options] = self._meanwhile.take(options) or self._varying(options)
        return self._variants[options]

    def begin(self, variants: Sequence[Mapping[str, bool]]) -> None:
        """Translate and compile these variants beside what is executed next; ``variant`` waits for its own."""
        wanted = (self._varied(**variant) for variant in variants)
        self._meanwhile.begin({o: functools.partial(self._made, o) for o in wanted if o not in self._variants})

    def _varied(self, *, late_dma: bool = False, late_windows: bool = False, witness: bool = False) -> Options:
        return replace(self._options, late_dma=late_dma, late_windows=late_windows, witness=CELLS if witness else 0)

    def _begun_late(self) -> Loaded | None:
        """Its translation with late DMAs, which is compiled beside what comes next: that takes the longest of all."""
        if not any(op.name in DMA_OPS for kernel in self._modules.values() for op in kernel.operations()):
            return None
        options = self._varied(late_dma=True)
        try:
            late = self._varying(options)
        except Exception:  # what fails is tried again where it is needed, and said there
            return None
        self._meanwhile.begin({options: late.compiled})
        return late

    def _varying(self, options: Options) -> Loaded:
        return Loaded(self._original, options, modules=self._modules)

    def _made(self, options: Options) -> Loaded:
        return self._varying(options).compiled()

    def _control(self, report: np.ndarray) -> ControlFlow:
        counts, digests, *_ = self._layout.parts
        return counting.control_flow(
            (kernel.module, row[counts:digests]) for kernel, row in zip(self.kernels, report, strict=True)
        )

    def _disturbed(self, report: np.ndarray) -> tuple[Finding, ...]:
        """What goes wrong where chips run ahead of others, in kernels in which nothing else does."""
        *_, logs, _ = self._layout.parts
        if not self._layout.chips:
            return ()
        return tuple(
            finding
            for kernel, row in zip(self.kernels, report, strict=True)
            for finding in chip_races.findings(kernel, events.read(row[logs:], self._layout.chips))
        )

    def _findings(self, report: np.ndarray) -> tuple[Finding, ...]:
        findings = []
        for kernel, sites, flags in zip(self.kernels, self._translation.sites, report, strict=True):
            for i in range(len(KINDS)):
                step, site = int(flags[2 * i]), int(flags[2 * i + 1])
                if site < 0:
                    continue
                at = sites[site]
                findings.append(
                    Finding(
                        kind=at.kind,
                        operation=at.operation,
                        grid_step=kernel.coordinates(step),
                        location=at.location,
                        message=f"kernel {kernel.name}: {at.message}",
                    )
                )
        return tuple(findings)


def load(tpu_program: bytes, *, f32_matmul_passes: str = "mxu") -> Loaded:
    """Parse an exported TPU program and translate its kernels.

    Args:
        tpu_program: A serialised ``jax.export`` artefact for platform ``tpu``.
        f32_matmul_passes: See ``executor.Options``.

    Raises:
        Refusal: ``CANNOT_VERIFY`` for an operation, type or attribute that is not known, ``HOST_CALLBACK`` for a
            program that calls back to the host or depends on the platform.
    """
    try:
        exported = export.deserialize(bytearray(tpu_program))
    except Exception as error:  # flatbuffers raises nearly anything on corrupt bytes
        raise unreadable(error) from None
    return translated(exported, Options(f32_matmul_passes=f32_matmul_passes))


def translated(exported: Any, options: Options, *, late_first: bool = False) -> Loaded:
    """A program, translated. Whatever its modules make the translation raise is a refusal.

    With ``late_first`` its translation with late DMAs is begun before, for who will ``check`` it.

    Raises:
        Refusal: as :func:`load`.
    """
    with _readable():
        return Loaded(exported, options, late_first=late_first)


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """A damaged module can break any rule that sound ones keep: what that raises is a refusal."""
    try:
        yield
    except Refusal:
        raise
    except Exception as error:
        raise unreadable(error) from None


def unreadable(error: Exception) -> Refusal:
    return Refusal(Status.CANNOT_VERIFY, f"the artefact cannot be read: {type(error).__name__}: {error}")


def on_kept(program: Any) -> Callable[..., list[Any]]:
    """An exported program that takes and gives narrow floats as memory keeps them.

    XLA drops conversions that follow each other. One alone copies all of an array, in every execution.
    """

    def call(*kept: Any) -> list[Any]:
        given = (decode(array, aval.dtype) for array, aval in zip(kept, program.in_avals, strict=True))
        return [encode(output) for output in program.call(*given)]

    return call


def _as_held(output: Any, spec: ArraySpec) -> list[np.ndarray]:
    """An output as its devices hold it: one array, and one more for every replica that differs from the first."""
    shards: dict[str, list[Any]] = {}
    for shard in output.addressable_shards:
        shards.setdefault(str(shard.index), []).append(shard)
    replicas: list[np.ndarray] = []
    for number in range(min(map(len, shards.values()))):
        whole = np.empty(output.shape, output.dtype)
        for copies in shards.values():
            whole[copies[number].index] = np.asarray(copies[number].data)
        if not replicas or whole.tobytes() != replicas[0].tobytes():
            replicas.append(whole.view(jnp.dtype(spec.dtype)))
    return replicas


def _check_program(exported: Any) -> None:
    if tuple(exported.platforms) != ("tpu",):
        raise Refusal(Status.HOST_CALLBACK, f"the program is for platforms {exported.platforms}; wanted tpu alone")
    if exported.ordered_effects or exported.unordered_effects:
        raise Refusal(Status.HOST_CALLBACK, "the program has side effects on the host; a kernel may not")
    if exported.uses_global_constants:
        raise Refusal(Status.CANNOT_VERIFY, "the program has symbolic shapes; export it with the scored ones")


def _spec(aval: Any) -> ArraySpec:
    return ArraySpec(shape=tuple(aval.shape), dtype=np.dtype(aval.dtype).name)
