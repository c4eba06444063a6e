"""What is known of each TPU, every number with its source.

Sources: [cloud] Google Cloud TPU documentation, v5e system architecture; [book] "How to Scale Your
Model" (the Scaling Book), TPU chapter; [tpu_info] ``jax.experimental.pallas.tpu`` device
information; [jax] JAX's table of PCI identifiers of TPUs; [compiler] the error texts and dump headers of libtpu;
[fit] fitted by this project on published device timings (see ``docs/architecture.md``). The fitted constants of each
chip, and how far its modelled latencies were checked, are in ``fitted.json`` beside this file.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from ratchet.tpu.chips import fitted
from ratchet.values.status import Refusal, Status


@dataclass(frozen=True, kw_only=True)
class Slice:
    """Devices that are offered together."""

    topology: str
    """Its name for ahead-of-time compilation."""
    shape: tuple[int, ...]
    """Devices along each axis; neighbouring ids differ along the first one. No wraparound."""

    @property
    def chips(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, kw_only=True)
class Links:
    """What is known of the links of a chip. No published timing resolves single messages."""

    link_bytes_per_s: float
    """Per link and direction."""
    hop_s: float
    """From a message's last byte on a link until the next chip has it, the DMA engine's own latency included."""
    spread: float
    """By which share either may be off, nine times in ten."""
    source: str
    """What they rest on."""


@dataclass(frozen=True, kw_only=True)
class Ici(Links):
    """The links between the chips of one slice."""

    shape: tuple[int, ...]
    """That of the slice."""

    @property
    def chips(self) -> int:
        return math.prod(self.shape)

    @property
    def links_of_a_chip(self) -> int:
        """Directions in which the chip with most neighbours sends at once; it receives over as many."""
        return sum(min(2, length - 1) for length in self.shape)

    def path(self, source: int, target: int) -> tuple[int, ...]:
        """The chips that a message passes, both ends included: axis after axis."""
        path, stride = [source], 1
        for length in self.shape:
            steps = target // stride % length - source // stride % length
            for _ in range(abs(steps)):
                path.append(path[-1] + (stride if steps > 0 else -stride))
            stride *= length
        return tuple(path)

    def links(self) -> list[tuple[int, int]]:
        """All links, each direction on its own."""
        pairs = itertools.permutations(range(self.chips), 2)
        return [pair for pair in pairs if len(self.path(*pair)) == 2]


@dataclass(frozen=True, kw_only=True)
class SparseCores:
    """The SparseCores beside a TensorCore: what its programs wait for.

    XLA lets them copy an array into another layout while or after the TensorCore works, and on some chips exchange
    arrays with the other chips. Of kernels of theirs the streams of the tiles are timed: ``machine/tiles.py``.
    """

    cores: int
    """Of one device."""
    granule_bytes: int
    """What a stream counts in [tpu_info]."""
    tiles: int = 16
    """Of each of them [tpu_info]."""
    lanes: int
    """Of a vector of a tile's [tpu_info]."""
    delay_slots: int = 2
    """Bundles of a tile behind a branch that always execute, where the listing does not say."""
    granules_per_s: float = 1.38e9
    """What the engine of one tile moves, in and out together [chosen by hand on the rows of ``benchmarks.sparse``: in
    sample]."""
    stream_latency_s: float = 0.5e-6
    """From the last granule of a stream until its flag has moved [likewise]."""
    stream_hbm_share: float = 0.73
    """Of the bandwidth of HBM, what the streams of all tiles reach, in rows of 512 bytes [likewise]."""

    bytes_per_s: float
    """What all together copy into another layout, bytes read plus bytes written."""
    start_s: float
    """From the signal to start until the signal that a program is over, beyond the time of its bytes."""
    exchange_bytes_per_s: float = 0.0
    """What all together receive of the other chips in a collective; 0 where none was timed."""
    exchange_start_s: float = 0.0
    """Of a collective, beyond the time of its bytes."""


@dataclass(frozen=True, kw_only=True)
class Chip:
    """One TPU as a program has it (JAX's device): what the judge and the schedule machine need of it."""

    name: str
    slices: tuple[Slice, ...]
    """Those that are described, the smallest first: a program for one device is compiled for that."""
    device_kind: str
    """What JAX calls the device: a kernel that asks which chip it is lowered for gets this name."""
    accelerator_type: str
    """Value of ``TPU_ACCELERATOR_TYPE`` while compiling for it."""
    pci_id: str
    generation: int
    """What tpu-inference calls the version of a TPU."""
    clock_hz: float
    peak_bf16_flops: float
    peak_int8_ops: float
    peak_int4_ops: float
    peak_fp8_flops: float
    """That of bf16 where the chip has no fp8 units: such operands are converted."""
    hbm_bytes: int
    hbm_bytes_per_s: float
    vmem_bytes: int
    reserved_vmem_bytes: int = 0
    """Of VMEM, what the compiler's report counts among XLA's arrays and keeps for kernels [compiler]."""
    default_scoped_vmem_bytes: int
    cores: int
    """TensorCores that one program runs on; they share bandwidth and peak."""
    devices: int = 1
    """Devices of JAX's on one chip, each a core of its own. Their ids are neighbours."""
    mxu_per_core: int
    mxu_size: int
    schedules: bool = True
    """Whether the schedule machine knows what its programs mean."""
    hbm_address_bytes: int = 32
    """Programs count addresses in HBM in steps of so many bytes [compiler]."""
    branch_delay_slots: int = 4
    """Bundles behind a branch that always execute."""
    permute_extra_cycles: int = 0
    """For how much longer a permutation of lanes holds its cross-lane unit than the compiler's schedule has it."""
    links: Links | None = None
    """None where they are not described."""
    sparse: SparseCores | None = None
    """None where they are not described."""

    def peak_flops(self, kind: str) -> float:
        """FLOPs per second of products of ``kind``, as ``ratchet.exam.problem.work.Work`` names them.

        A product of float32 takes as many passes of bf16 as its kind says; a kind that is not known here is bounded by
        the fastest of all.
        """
        passes = _PASSES.get(kind)
        if passes is not None:
            return self.peak_bf16_flops / passes
        known = {"int8": self.peak_int8_ops, "int4": self.peak_int4_ops, "f8": self.peak_fp8_flops}
        return max(self.peak_bf16_flops, known.get(kind, max(known.values())))

    @property
    def ridge_flops_per_byte(self) -> float:
        """Arithmetic intensity at which compute and HBM bandwidth bound alike."""
        return self.peak_bf16_flops / self.hbm_bytes_per_s

    @property
    def constants(self) -> fitted.Constants:
        """What was fitted. Raises Refusal USAGE for a chip that nothing is known of."""
        return fitted.constants(self.name)

    @property
    def achievable_hbm_bytes_per_s(self) -> float:
        """What DMAs reach of the nominal bandwidth, as fitted."""
        return self.constants.hbm_efficiency * self.hbm_bytes_per_s

    def slice_of(self, devices: int) -> Slice:
        """The slice with so many devices, the smallest for one. Raises Refusal USAGE where none is described."""
        for one in self.slices:
            if devices in (1, one.chips):
                return one
        sizes = " or ".join(str(one.chips) for one in self.slices)
        what = f"a mesh of {devices} devices; a slice of {self.name} has {sizes}: use all of them or one"
        raise Refusal(Status.USAGE, what)

    def ici(self, devices: int) -> Ici:
        """The links of the slice with so many devices, as ``slice_of``. Raises SCHEDULE_UNKNOWN for none."""
        if self.links is None:
            known = ", ".join(name for name, chip in CHIPS.items() if chip.links)
            raise Refusal(Status.SCHEDULE_UNKNOWN, f"slices of {self.name} are not modelled; those of {known} are")
        return Ici(shape=self.slice_of(devices).shape, **vars(self.links))

    @property
    def sparse_cores(self) -> SparseCores:
        """Those beside its TensorCore. Raises Refusal SCHEDULE_UNKNOWN for a chip whose own are not described."""
        if self.sparse is None:
            known = ", ".join(name for name, chip in CHIPS.items() if chip.sparse)
            raise Refusal(
                Status.SCHEDULE_UNKNOWN,
                f"the program uses SparseCores, which are not described for {self.name}; described: {known}.",
            )
        return self.sparse


_PASSES = {  # of the bf16 unit; float32 at HIGH and HIGHEST is three products of two parts, six of three
    "bf16": 1,
    "f16": 1,
    "f32x1": 1,
    "f32x2": 2,
    "f32x3": 3,
    "f32x6": 6,
}

MiB = 1 << 20

V5E = Chip(
    name="v5e",
    slices=(Slice(topology="v5e:2x2", shape=(2, 2)), Slice(topology="v5e:2x4", shape=(2, 4))),
    device_kind="TPU v5 lite",  # [tpu_info]
    accelerator_type="v5litepod-4",
    pci_id="0x0063",  # [jax]
    generation=5,
    clock_hz=1.5e9,  # [book]; 197e12 / (4 * 128 * 128 * 2) = 1.503e9
    peak_bf16_flops=197e12,  # [cloud]
    peak_int8_ops=394e12,  # [cloud]
    peak_int4_ops=788e12,  # [tpu_info]
    peak_fp8_flops=197e12,  # [tpu_info] has no fp8 units
    hbm_bytes=int(15.75 * (1 << 30)),  # [compiler] usable by a program, of 16 GB [cloud]
    hbm_bytes_per_s=819e9,  # [cloud]
    vmem_bytes=128 * MiB,  # [tpu_info]
    default_scoped_vmem_bytes=16 * MiB,  # [compiler]
    cores=1,  # [cloud]
    mxu_per_core=4,  # [cloud]
    mxu_size=128,  # [cloud]
    hbm_address_bytes=512,  # [compiler]
    permute_extra_cycles=1,  # [fit] two segmented cumsums, and two attention kernels that differ in their permutations
    # [fit] on AMLeng/tpu-kernels' matmul of bf16[8192,8192] on 2x2 chips, device times: one ppermute of 67 MB per chip
    # in a ring (2.932 ms: the bandwidth), and a psum of f32[4096,8192] in blocks, which waits for thousands of messages
    # one after the other (4.641 ms: the hop). 50 GB/s is a quarter of the advertised 1600 Gbit/s [cloud].
    # `benchmarks.fidelity` prints what the two are modelled at, in sample. No wraparound below 16 chips [cloud].
    links=Links(
        link_bytes_per_s=50e9,
        hop_s=1.25e-6,
        spread=0.05,
        source="fitted on a ppermute and a psum of one author's, timed on 2x2 chips",
    ),
)

V5P = Chip(
    name="v5p",
    slices=(Slice(topology="v5p:2x2x1", shape=(2, 2)), Slice(topology="v5p:2x2x2", shape=(2, 2, 2))),
    device_kind="TPU v5",  # [tpu_info]
    accelerator_type="v5p-8",
    pci_id="0x0062",  # [jax]
    generation=5,
    clock_hz=1.75e9,  # [book]; 459e12 / (2 * 4 * 128 * 128 * 2) = 1.751e9
    peak_bf16_flops=459e12,  # [cloud]
    peak_int8_ops=918e12,  # [cloud]
    peak_int4_ops=1840e12,  # [tpu_info]
    peak_fp8_flops=459e12,  # [tpu_info] has no fp8 units
    hbm_bytes=95 * (1 << 30),  # [cloud]
    hbm_bytes_per_s=2765e9,  # [cloud]
    vmem_bytes=64 * MiB,  # [tpu_info], per core
    default_scoped_vmem_bytes=16 * MiB,  # [compiler]
    cores=2,  # [tpu_info]: one device, whose program runs on both
    mxu_per_core=4,  # [tpu_info]
    mxu_size=128,  # [tpu_info]
    permute_extra_cycles=1,  # assumed: the compiler spaces its cross-lane operations as on v5e
    sparse=SparseCores(cores=4, granule_bytes=32, lanes=8, bytes_per_s=2500e9, start_s=5e-6),  # assumed: as for tpu7x
    links=Links(
        link_bytes_per_s=86.35e9,
        hop_s=1.29e-6,
        spread=0.05,
        source="fitted on one author's ppermutes, timed on 2x2x1 chips",
    ),
)

# Chips without published timings here. v4 and v7x offer each of their two cores as a device of its own: the numbers
# are those of one core, with half of what the chip's memory gives.
V4 = Chip(
    name="v4",
    slices=(Slice(topology="v4:2x2x1", shape=(2, 2)),),
    device_kind="TPU v4",  # [tpu_info]
    accelerator_type="v4-8",
    pci_id="0x005e",  # [jax]
    generation=4,
    clock_hz=1.05e9,  # [book]; 275e12 / (2 * 4 * 128 * 128 * 2) = 1.049e9
    peak_bf16_flops=137.5e12,  # [cloud] 275e12 per chip
    peak_int8_ops=137.5e12,  # [cloud] 275e12 per chip: no faster than bf16
    peak_int4_ops=137.5e12,  # [tpu_info] has no int4 units
    peak_fp8_flops=137.5e12,  # nor fp8 units
    hbm_bytes=16 * (1 << 30),  # [cloud] 32 GiB per chip
    hbm_bytes_per_s=614e9,  # [cloud] 1228 GB/s per chip
    vmem_bytes=16 * MiB,  # [tpu_info]
    default_scoped_vmem_bytes=16 * MiB,  # [compiler] all of it
    cores=1,  # [tpu_info] of the device
    mxu_per_core=4,  # [cloud]
    mxu_size=128,  # [cloud]
    schedules=False,  # its DMAs and sync flags count granules of 512 bytes [compiler]
    hbm_address_bytes=512,  # [compiler]
)

V6E = Chip(
    name="v6e",
    slices=(Slice(topology="v6e:2x2", shape=(2, 2)), Slice(topology="v6e:2x4", shape=(2, 4))),
    device_kind="TPU v6 lite",  # [tpu_info]
    accelerator_type="v6e-4",
    pci_id="0x006f",  # [jax]
    generation=6,
    clock_hz=1.75e9,  # 918e12 / (2 * 16 * 256 * 256 * 2 / 8): a product of 16 rows every 8 cycles [compiler]
    peak_bf16_flops=918e12,  # [cloud]
    peak_int8_ops=1836e12,  # [cloud]
    peak_int4_ops=3680e12,  # [tpu_info]
    peak_fp8_flops=920e12,  # [tpu_info]
    hbm_bytes=32 * (1 << 30),  # [cloud]
    hbm_bytes_per_s=1640e9,  # [cloud]
    vmem_bytes=128 * MiB,  # [tpu_info]
    default_scoped_vmem_bytes=32 * MiB,  # [compiler]
    cores=1,  # [tpu_info]
    mxu_per_core=2,  # [cloud]
    mxu_size=256,  # [cloud]
    # [fit] on marin-community/marin#6736's ppermute of 64 MiB (the bandwidth) and of 1 MiB (the hop) in a ring of eight
    # chips. `benchmarks.fidelity` prints what both are modelled at, in sample.
    sparse=SparseCores(cores=2, granule_bytes=32, lanes=8, bytes_per_s=1400e9, start_s=5e-6),  # assumed: as for tpu7x
    links=Links(
        link_bytes_per_s=87.1e9,
        hop_s=1.3e-6,
        spread=0.05,
        source="fitted on one author's ppermutes, timed on 2x4 chips",
    ),
)

TPU7X = Chip(
    name="tpu7x",
    slices=(Slice(topology="tpu7x:2x2x1", shape=(2, 2, 2)),),  # two devices a chip, neighbours along the first axis
    device_kind="TPU7x",  # [tpu_info]
    accelerator_type="tpu7x-8",
    pci_id="0x0076",  # [jax]
    generation=7,
    clock_hz=1.784e9,  # [fit] ± 0.008, by `python -m benchmarks.chips`; the peak, counted as for v6e, wants 2.2e9
    peak_bf16_flops=1153.5e12,  # [cloud] 2307e12 per chip
    peak_int8_ops=1153.5e12,  # [tpu_info] has no int8 units: taken as bf16
    peak_int4_ops=1153.5e12,  # likewise
    peak_fp8_flops=2300e12,  # [tpu_info] 4600e12 per chip
    hbm_bytes=96 * (1 << 30),  # [cloud] 192 GiB per chip
    hbm_bytes_per_s=3690e9,  # [cloud] 7380 GB/s per chip
    vmem_bytes=64 * MiB,  # [tpu_info]
    reserved_vmem_bytes=32 * MiB,  # [compiler] half of it
    default_scoped_vmem_bytes=64 * MiB,  # [compiler] all of it
    cores=1,  # [tpu_info] of the device
    devices=2,
    mxu_per_core=2,  # [tpu_info]
    mxu_size=256,  # [tpu_info]
    branch_delay_slots=6,  # [compiler] as far as it fills them with code of the way that falls through; v6e: 4
    # Assumed: nine tenths of the bandwidth of HBM. Published device times hold no copy of a result; with a start of 0
    # or 10 us the grouped matmuls (tokamax) fit about as well. [fit] of the exchange: five all-gathers of four devices
    # on 2x2x1 chips (AI-Hypercomputer/accelerator-microbenchmarks, guide to all_gather), by `benchmarks.fidelity`.
    sparse=SparseCores(
        cores=2,
        granule_bytes=64,
        lanes=16,
        bytes_per_s=3300e9,
        start_s=5e-6,
        exchange_bytes_per_s=90e9,
        exchange_start_s=14.5e-6,
    ),
    links=Links(
        link_bytes_per_s=87.1e9,
        hop_s=1.3e-6,
        spread=0.5,
        source="assumed to be those of v6e, within a chip, too: none was timed",
    ),
)

CHIPS: dict[str, Chip] = {chip.name: chip for chip in (V5E, V5P, V4, V6E, TPU7X)}
