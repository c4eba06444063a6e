"""Kernels with SparseCores or on two TensorCores: JAX's tests of them, its guides, and gathers of sparse rows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.coverage import calls
from benchmarks.coverage.calls import CASES, F32, Call, ints, normal, permuted
from benchmarks.coverage.tested import devices_of, of_blocks, of_method

SECTION = "several cores"
enter, case = partial(calls.enter, section=SECTION), partial(calls.case, section=SECTION)
TESTS = "tests/pallas/tpu_"
METHODS = {
    ("sparsecore_pallas_test.py", "v6e"): {
        "VectorSubcoreTest": (
            "add_one_block_specs add_sub_one0 get_multi_index scatter_major0 scatter_1d_array "
            "addupdate_scatter_core_memory_space gather_1d0 gather_1d_with_filter large_gather_1d "
            "gather_2d_with_indexing gather_1d_with_dynamically_sized_ref load_gather_2d load_gather_masked0 "
            "store_scatter_2d addupdate_scatter0 load_expanded0 store_compressed0 addupdate_compressed0 bitcast0 "
            "pack_unpack0 scan_count0 population_count ffs0 fetch_and_add shared_scratch subcore_parallel2 "
            "tiled_dma_hbm_vmem_shared0 smem_vmem_store_literals cumsum0 reductions0 masked_cummax1 "
            "parallel_loop_with_carry barrier gather_add0 scatter_add1 vector_gather0 take_along_axis0 "
            "sort_key_val0 sort0 large_grid_mul0"
        ),
        "ScalarSubcoreTest": "copy sliced_copy scalar_load_store parallel_loop0 parallel_loop_with_carry",
        "PipelineTest": "basic gather_with_emit gather_via_indirect0 explicit_sc_tiling_2d manual",
        "PallasSparsecoreAsyncTest": "basic_async_kernel0",
    },
    ("pallas_mpmd_test.py", "tpu7x"): {
        "MpmdTest": (
            "mpmd_capture_scalar1 parallel_subkernels0 parallel_subkernels_semaphores0 copy_with_cross_core_signaling"
        ),
    },
    ("pallas_state_test.py", "v5p"): {
        "CoreMapTest": (
            "kernel_helper_basic can_signal_cores can_query_core_index kernel_helper_with_scratch "
            "kernel_helper_with_out_tree"
        ),
    },
    ("pallas_memory_space_test.py", "v5p"): {"TPUCoreMapMemorySpaceTest": "smem_async_copy_megacore"},
    ("pallas_pipeline_test.py", "v5p"): {
        "PallasCallMegacoreTest": (
            "can_partition_nondivisible_grid_with_dynamic_dimensions can_partition_grid0 megacore_mul "
            "megacore_matmul0 pipeline_axis_queries"
        ),
    },
}
"""By file and chip, methods of each class: the first variant of most."""


def _method(module: Any, *, chip: str, of: str, name: str) -> Call:
    call = of_method(getattr(module, of), f"test_{name}", chip=chip)
    if name == "megacore_matmul0":  # it asks for the error of a product on a TPU, and has none here
        return replace(call, check=None, reference=jnp.matmul)
    return call


for (_file, _chip), _classes in METHODS.items():
    for _of, _names in _classes.items():
        _calls = {
            f"jax-source/{_of}, {name.rstrip('0123456789').replace('_', ' ')}": partial(
                _method, chip=_chip, of=_of, name=name
            )
            for name in _names.split()
        }
        enter(TESTS + _file, _calls)


STEPS = 16
"""In the place of 1024: enough that each row is scattered to."""
enter(
    "docs/pallas/tpu/sparsecore.md",
    {
        f"jax-source/SparseCore guide, {name}": partial(
            of_blocks, place=place, number=number, chip=chip, instead={"num_steps": STEPS}
        )
        for name, place, number, chip in (
            ("cumulative sum", 3, 0, "v6e"),
            ("pipeline", 4, 0, "tpu7x"),
            ("beside a TensorCore", 5, 1, "tpu7x"),
            ("gather", 6, 0, "v6e"),
            ("scatter", 7, 0, "v6e"),
        )
    },
)

enter(
    "docs/pallas/tpu/core_map.ipynb",
    {
        f"jax-source/core guide, {name}": partial(of_blocks, place=place, chip=chip, axis="device")
        for name, place, chip in (
            ("swap between cores", 3, "v5p"),
            ("swap by a kernel", 4, "v5p"),
            ("pipeline over cores", 5, "v5p"),
            ("pipeline with a prefetched index", 6, "v5p"),
            ("SparseCores", 8, "v5p"),
        )
    },
)


# --- rows by number ---

ROWS, COLUMNS, TOP = 512, 256, 8
MANY, WIDE = 2048, 5120
"""20 MiB: of less, some leave the SparseCores alone."""
FIRST, END = 3, 338


def _ragged_gather(module: Any, name: str, chip: str = "tpu7x") -> Call:
    """Only rows from FIRST up to END are defined."""

    def kernel(*arrays: Any) -> Any:
        with devices_of(chip):
            return getattr(module, name)(*arrays)[FIRST:END]

    def reference(x: Any, indices: Any, *_: Any) -> Any:
        return x[indices][FIRST:END]

    arrays = normal("x", ROWS, COLUMNS), permuted("rows", ROWS), ints(FIRST), ints(END)
    return Call(function=kernel, arrays=arrays, reference=reference, tolerance=0.0, chip=chip)


def _ragged_scatter(module: Any, name: str) -> Call:
    """Only rows whose number is from FIRST up to END are defined."""

    def kept(rows: Any, indices: Any) -> Any:
        return jnp.where(((indices >= FIRST) & (indices < END))[:, None], rows, 0)

    def kernel(x: Any, indices: Any, *bounds: Any) -> Any:
        return kept(getattr(module, name)(x, indices, *bounds), indices)

    def reference(x: Any, indices: Any, *_: Any) -> Any:
        return kept(x[indices], indices)

    arrays = normal("x", MANY, WIDE), permuted("rows", MANY), ints(FIRST), ints(END)
    return Call(function=kernel, arrays=arrays, reference=reference, tolerance=0.0, chip="tpu7x")


def _weighted(x: Any, indices: Any, weights: Any, valid: Any = True) -> Any:
    products = jnp.where(jnp.reshape(valid, (-1, 1)), x[indices].astype(F32) * weights.reshape(-1, 1).astype(F32), 0)
    return products.reshape(-1, TOP, x.shape[1]).sum(1).astype(jnp.bfloat16)


def _ragged_reduce(module: Any, name: str, chip: str = "tpu7x") -> Call:
    def kernel(*arrays: Any) -> Any:
        with devices_of(chip):
            return getattr(module, name)(*arrays, TOP)

    indices = permuted("rows", MANY)
    arrays = normal("x", MANY, WIDE), indices, normal("weights", MANY), (indices >= FIRST) & (indices < END)
    return Call(function=kernel, arrays=arrays, reference=_weighted, chip=chip)


def _dense_reduce(module: Any, name: str, rows: int, weights: tuple[int, ...], **options: Any) -> Call:
    """As many indices as all subcores take at once."""

    def kernel(*arrays: Any) -> Any:
        return getattr(module, name)(*arrays, reduce_group_size=TOP, **options)

    arrays = normal("x", rows, 256), permuted("rows", rows), normal("weights", *weights)
    return Call(function=kernel, arrays=arrays, reference=_weighted, chip="tpu7x")


SPARSE = "tpu_inference/kernels/sparse_core/"
enter(SPARSE + "ragged_gather_v2.py", {"tpu-inference/ragged gather": partial(_ragged_gather, name="ragged_gather_v2")})
enter(SPARSE + "ragged_scatter.py", {"tpu-inference/ragged scatter": partial(_ragged_scatter, name="ragged_scatter")})
enter(
    SPARSE + "ragged_gather_reduce_v2.py",
    {"tpu-inference/ragged gather and sum": partial(_ragged_reduce, name="ragged_gather_reduce")},
)
enter(
    SPARSE + "dense_gather_reduce.py",
    {
        "tpu-inference/gather and sum": partial(
            _dense_reduce, name="dense_gather_reduce", rows=16384, weights=(2048, TOP)
        )
    },
)
OPS = "tokamax/_src/ops/"
enter(
    OPS + "ragged_gather/pallas_mosaic_tpu_kernel.py",
    {"tokamax/ragged gather": partial(_ragged_gather, name="ragged_gather_pallas")},
)
enter(
    OPS + "ragged_gather/pallas_mosaic_v2_tpu_kernel.py",
    {"tokamax/ragged gather v2": partial(_ragged_gather, name="ragged_gather_pallas")},
)
enter(
    OPS + "ragged_scatter/pallas_mosaic_tpu_kernel.py",
    {"tokamax/ragged scatter": partial(_ragged_scatter, name="ragged_scatter_pallas")},
)
enter(
    OPS + "ragged_gather_reduce/pallas_mosaic_tpu_kernel.py",
    {"tokamax/ragged gather and sum": partial(_ragged_reduce, name="ragged_gather_reduce_pallas")},
)


@case("tokamax/top k on SparseCores", path=OPS + "experimental/tpu/topk/pallas_mosaic_tpu_kernel.py")
def _(module: Any) -> Call:
    keys = normal("keys", 2, 16384, dtype=F32)
    return Call(
        function=lambda keys: module.top_k(keys, k=128)[0],
        arrays=(keys,),
        reference=lambda keys: jax.lax.top_k(keys, 128)[0],
        tolerance=0.0,
        chip="tpu7x",
    )


MAXTEXT = "src/maxtext/kernels/"
enter(MAXTEXT + "ragged/ragged_gather.py", {"maxtext/ragged gather": partial(_ragged_gather, name="ragged_gather")})
enter(
    MAXTEXT + "ragged/ragged_gather_reduce.py",
    {"maxtext/ragged gather and sum": partial(_ragged_reduce, name="ragged_gather_reduce")},
)
enter(
    MAXTEXT + "ragged/ragged_gather_reduce_v2.py",
    {"maxtext/ragged gather and sum v2": partial(_ragged_reduce, name="ragged_gather_reduce")},
)
enter(
    MAXTEXT + "gather_reduce_pallas.py",
    {
        "maxtext/gather and sum": partial(
            _dense_reduce,
            name="sc_gather_reduce",
            rows=16384,
            weights=(128, 128),
            col_chunk_size=256,
            row_chunk_size=16,
        )
    },
)

NAMES = tuple(name for name, entry in CASES.items() if entry.section == SECTION)
"""Of all these, in order."""
