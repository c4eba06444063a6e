"""The kernels of the package are kernel files that the ratchet judges, and fit the shapes they are asked for."""

import ast
import dataclasses
import importlib
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pallas_flash import BackwardBlocks, ForwardBlocks, attention
from pallas_flash.config import Shape, even, fit_backward, fit_forward, one_pass, round_up, table_tile
from pallas_flash.kernels.flash_forward import Pattern, ends_alike
from pallas_flash.target import Target
from ratchet.exam.candidate.contract import SYMBOLS, check_source, check_symbols
from ratchet.exam.problem.problem import decode, lock_path
from ratchet.process.sandbox.child import PACKAGE_ROOT

LINE = "\n# ---- the problem that the ratchet judges ----\n"
KERNELS = sorted(p for p in (PACKAGE_ROOT / "pallas_flash" / "kernels").glob("*.py") if p.stem != "__init__")


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda path: path.stem)
def test_a_module_of_the_package_is_a_kernel_file_with_a_frozen_problem(kernel):
    check_source(kernel.read_bytes(), kernel.name)
    module = importlib.import_module(f"pallas_flash.kernels.{kernel.stem}")
    check_symbols(vars(module))
    problem = decode(lock_path(kernel).read_bytes(), "the lock")
    assert (problem.kernel_name, problem.description) == (module.KERNEL_NAME, module.PROBLEM_DESCRIPTION)
    assert problem.flops == module.compute_flops()


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda path: path.stem)
def test_the_kernel_for_any_shape_knows_nothing_of_the_shape_that_is_judged(kernel):
    above, line, below = kernel.read_text().partition(LINE)
    assert line
    top = ast.parse(below).body
    bound = {node.name for node in top if isinstance(node, ast.FunctionDef)}
    bound |= {n.id for node in top if isinstance(node, ast.Assign) for t in node.targets for n in ast.walk(t)
              if isinstance(n, ast.Name)}  # fmt: skip
    assert bound >= SYMBOLS.keys()
    assert not bound & {node.id for node in ast.walk(ast.parse(above)) if isinstance(node, ast.Name)}


def test_importing_the_package_starts_no_backend():
    """The problems in the kernels' modules are inert: an array made at import would ask for this platform."""
    program = "import jax, pallas_flash; print('imported', flush=True); jax.numpy.zeros(1)"
    environment = {**os.environ, "JAX_PLATFORMS": "nowhere"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=PACKAGE_ROOT, env=environment, check=False, capture_output=True, text=True)
    assert done.stdout == "imported\n", done.stderr
    assert "nowhere" in done.stderr, "an array does ask for it"


LENGTHS = st.integers(1, 70_000)
SHAPES = st.builds(
    Shape,
    batch=st.just(1),
    heads=st.sampled_from([4, 8]),
    kv_heads=st.sampled_from([1, 4]),
    q_len=LENGTHS,
    kv_len=LENGTHS,
    dim=st.sampled_from([64, 96, 128, 192, 256]),
    dim_v=st.sampled_from([64, 128, 256]),
    itemsize=st.sampled_from([2, 4]),
    left=st.none() | st.integers(0, 5000),
    right=st.none() | st.integers(0, 5000),
    tables=st.booleans(),
)


@pytest.mark.parametrize(
    ("length", "most", "block"),
    [(16384, 2048, 2048), (6000, 2048, 2048), (5120, 2048, 1024), (7168, 2048, 1024), (8448, 2048, 1792),
     (3584, 2048, 1792), (700, 2048, 768), (5120, 1024, 1024), (200, 512, 256), (300, 128, 128)],
)  # fmt: skip
def test_equal_parts_with_least_padding_of_whole_blocks_of_keys(length, most, block):
    assert even(length, most) == block


@given(SHAPES, st.booleans(), st.sampled_from([256, 512, 1024, 2048, 4096]), st.sampled_from([256, 512, 1024, 2048]))
def test_blocks_divide_what_they_cut_and_pad_little(shape, square, block, width):
    if square:
        shape = Shape(**{**vars(shape), "kv_len": shape.q_len, "right": 0})
    tile = table_tile(512, shape) if shape.tables else None
    forward = fit_forward(ForwardBlocks(block_q=block, block_kv=width, unroll=4), shape, tile)
    assert forward.block_q % forward.rows == 0
    assert forward.chunk_kv % forward.turn == 0
    backward, parts = fit_backward(BackwardBlocks(block_q=block, block_kv=width), shape, tile)
    assert backward.block_q % backward.rows == backward.block_q % backward.strip == 0
    assert backward.chunk_q % backward.block_q == backward.chunk_kv % backward.block_kv == 0
    assert not parts or backward.chunk_q >= shape.q_len
    assert parts == 0 or one_pass(dataclasses.replace(shape, kv_heads=parts * shape.kv_heads), backward.chunk_q)
    assert parts < 2 or not one_pass(shape, backward.chunk_q)
    if shape.square and not shape.tables:
        assert forward.chunk_kv % forward.block_q == 0, "or the diagonal has no strips"
        assert forward.block_q % forward.turn == 0
        assert backward.block_q == backward.block_kv
    if not shape.tables:
        pieces = -(-shape.q_len // forward.block_q)  # a window may ask for smaller blocks than wanted
        assert round_up(shape.q_len, forward.block_q) - shape.q_len < 256 * (pieces + 1) or forward.block_q <= 256


@pytest.mark.parametrize(("window", "known"), [(1536, True), (1537, True), (2304, True), (1001, False), (1538, False)])
def test_all_keys_of_a_block_are_known_where_a_window_is_several_blocks(window, known):
    blocks = ForwardBlocks(block_q=768, block_kv=256, unroll=3, chunk_kv=3072)
    assert ends_alike(Pattern(left=window - 1, right=0, q_len=2900, kv_len=2900), blocks, 3072) == known


@pytest.mark.parametrize(("window", "block"), [(4096, 2048), (3072, 1024), (4097, 2048), (2560, 512), (5000, 2048)])
def test_a_causal_window_is_several_blocks_where_that_pads_little(window, block):
    lengths = {"q_len": 8192, "kv_len": 8192, "left": window - 1, "right": 0}
    shape = Shape(
        batch=1, heads=4, kv_heads=1, dim=128, dim_v=128, itemsize=2, tables=False, target=Target(), **lengths
    )
    assert fit_forward(ForwardBlocks(), shape, None).block_q == block


def copied(jaxpr, least):
    """What pads or cuts an array of so many elements outside of kernels."""
    found = []
    for equation in jaxpr.eqns:
        name, sizes = equation.primitive.name, [x.aval.size for x in (*equation.invars, *equation.outvars)]
        if name in ("pad", "slice", "dynamic_slice", "concatenate") and max(sizes) >= least:
            found.append(name)
        inside = jax.tree.leaves(list(equation.params.values())) if name != "pallas_call" else ()
        for one in inside:
            inner = getattr(one, "jaxpr", one)
            found += copied(inner, least) if hasattr(inner, "eqns") else []
    return found


@pytest.mark.parametrize(
    "options", [{"causal": True}, {}, {"causal": True, "window": 700}, {"causal": True, "mask": "rule"}]
)
def test_a_length_that_no_block_divides_is_not_copied(options):
    options = {**options, "mask": lambda q, k: (q - k) % 3 == 0} if "mask" in options else options
    q, k, v = (jax.ShapeDtypeStruct((1, heads, 5001, 128), jnp.bfloat16) for heads in (4, 2, 2))

    def gradients(*operands):
        out, pull = jax.vjp(lambda *x: attention(*x, **options), *operands)
        return out, pull(out)

    traced = jax.make_jaxpr(gradients)(q, k, v)
    assert copied(traced.jaxpr, 2 * 5001 * 128) == []
