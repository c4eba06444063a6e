"""What a published case has to do at the least: FLOPs and bytes. For the roofline and the null model. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks.lib.published.cases import Array, Case
from ratchet.tpu.chips import Chip

_ITEM_BYTES = {"bf16": 2, "f16": 2, "f32": 4, "s8": 1, "i8": 1, "int8": 1, "s32": 4, "i32": 4}


@dataclass(frozen=True, kw_only=True)
class Work:
    """Useful work of one call."""

    flops: float
    compulsory_bytes: float
    """Every operand read once, the result written once."""

    def roofline_ms(self, chip: Chip) -> float:
        """The larger of compute at peak and compulsory traffic at full bandwidth."""
        return max(self.flops / chip.peak_bf16_flops, self.compulsory_bytes / chip.hbm_bytes_per_s) * 1e3


def null_ms(chip: Chip, *, steps: int, hbm_bytes: int, flops: float) -> float:
    """Grid steps that each pay 0.25 us and the larger of their traffic and their FLOPs, at the nominal rates.

    Args:
        chip: where it runs.
        steps: grid steps of one core.
        hbm_bytes: HBM traffic of one core.
        flops: of one step.
    """
    traffic = hbm_bytes / steps / (chip.hbm_bytes_per_s / chip.cores)
    compute = flops / (chip.peak_bf16_flops / chip.cores)
    return steps * (0.25e-6 + max(traffic, compute)) * 1e3


def step_flops(case: Case) -> float | None:
    """FLOPs of one full grid step, by the case's block sizes; None where they are not given."""
    config, shape = case.config, case.arrays[0].shape
    if "tile_m" in config:
        sizes = _grouped_sizes(case)
        return sizes and 2.0 * math.prod(min(tile, size) for tile, size in zip(_tiles(case), sizes, strict=True))
    for names, factor in (
        (("bm", "bk", "bn"), 2.0),
        (("block_q", "block_kv"), 4.0 * shape[-1]),
        (("BQ", "BKV"), 4.0 * shape[-1]),
    ):
        if all(name in config for name in names):
            return factor * math.prod(int(config[name]) for name in names)
    return None


def grouped_steps(case: Case) -> int | None:
    """Grid steps of a grouped matmul: every group visits each row tile that it touches; None for other kernels."""
    sizes = _grouped_sizes(case)
    if sizes is None:
        return None
    tile_m, tile_k, tile_n = _tiles(case)
    visits = start = 0
    for size in case.group_sizes:
        end = start + size
        # A transposed one visits empty groups too, to write their zeros.
        visits += -(-end // tile_m) - start // tile_m if size else int("tgmm" in case.kernel)
        start = end
    return visits * -(-sizes[1] // tile_k) * -(-sizes[2] // tile_n)


def _tiles(case: Case) -> tuple[int, int, int]:
    return int(case.config["tile_m"]), int(case.config["tile_k"]), int(case.config["tile_n"])


def _grouped_sizes(case: Case) -> tuple[int, int, int] | None:
    """m, k and n of a grouped matmul."""
    if not case.group_sizes or len(case.arrays) != 2 or not {"tile_m", "tile_k", "tile_n"} <= set(case.config):
        return None
    (m, k), right = case.arrays[0].shape, case.arrays[1].shape
    return m, k, right[1 if "transpose_rhs" in case.kernel or len(right) == 2 else 2]


def _bytes(array: Array) -> int:
    return math.prod(array.shape) * _ITEM_BYTES.get(array.dtype, 2)


def work(case: Case) -> Work | None:
    """FLOPs and bytes of a case; None for shapes that fit no kernel known here."""
    shapes = [array.shape for array in case.arrays]
    item = _ITEM_BYTES.get(case.arrays[0].dtype, 2) if case.arrays else 2
    operands = sum(_bytes(array) for array in case.arrays)
    match [len(shape) for shape in shapes]:
        case [2, 2] if case.group_sizes:  # tgmm: [m, k] and [m, n], one k x n result per group
            (m, k), (_, n) = shapes
            return Work(flops=2.0 * m * k * n, compulsory_bytes=operands + len(case.group_sizes) * k * n * item)
        case [2, 3]:  # gmm
            m, k = shapes[0]
            n = shapes[1][1] if "transpose_rhs" in case.kernel else shapes[1][2]
            return Work(flops=2.0 * m * k * n, compulsory_bytes=operands + m * n * item)
        case [2, 2]:
            (m, k), (_, n) = shapes
            return Work(flops=2.0 * m * k * n, compulsory_bytes=operands + m * n * item)
        case [4, 4, 4]:
            (batch, length, heads, width), (_, keys, _, _), (_, _, _, out) = shapes
            share = 0.5 if (case.options.get("mask") or {}).get("is_causal") else 1.0
            flops = 2.0 * batch * heads * length * keys * (width + out) * share
            return Work(flops=flops, compulsory_bytes=operands + batch * length * heads * out * item)
        case [2] if "scale" in case.kernel:  # read once, written once
            return Work(flops=float(math.prod(shapes[0])), compulsory_bytes=2.0 * operands)
        case [2]:  # one head, q, k and v alike
            length, width = shapes[0]
            return Work(flops=4.0 * length * length * width, compulsory_bytes=4.0 * operands)
    return None
