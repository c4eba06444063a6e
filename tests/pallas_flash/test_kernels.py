"""The kernels of the package are those of the ledger, and fit the shapes they are asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pallas_flash import BackwardBlocks, Config, ForwardBlocks
from pallas_flash.config import Shape, fit_backward, fit_forward, one_pass, round_up, table_tile
from ratchet.child import PACKAGE_ROOT
from ratchet.loop.export import export

KERNELS = sorted((PACKAGE_ROOT / "kernels").glob("*.py"))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda path: path.stem)
def test_exporting_again_gives_the_bytes_of_the_package(kernel):
    """And a row of the ledger judged them: a draft is refused here."""
    made = PACKAGE_ROOT / "pallas_flash" / "kernels" / kernel.name
    assert export(PACKAGE_ROOT, f"kernels/{kernel.name}") == made.read_bytes()


LENGTHS = st.integers(1, 70_000)
SHAPES = st.builds(
    Shape,
    batch=st.just(1),
    heads=st.sampled_from([4, 8]),
    kv_heads=st.sampled_from([1, 4]),
    q_len=LENGTHS,
    kv_len=LENGTHS,
    dim=st.sampled_from([64, 96, 128, 192, 256]),
    itemsize=st.sampled_from([2, 4]),
    left=st.none() | st.integers(0, 5000),
    right=st.none() | st.integers(0, 5000),
    tables=st.booleans(),
)


@given(SHAPES, st.booleans(), st.sampled_from([256, 512, 1024, 2048, 4096]), st.sampled_from([256, 512, 1024, 2048]))
def test_blocks_divide_what_they_cut_and_pad_little(shape, square, block, width):
    if square:
        shape = Shape(**{**vars(shape), "kv_len": shape.q_len, "right": 0})
    tile = table_tile(Config(), shape) if shape.tables else None
    forward = fit_forward(ForwardBlocks(block_q=block, block_kv=width, unroll=4), shape, tile)
    assert forward.block_q % forward.rows == 0
    assert forward.block_q % forward.strip == 0
    assert forward.block_q // forward.rows % forward.unroll == 0
    assert forward.chunk_kv % forward.block_kv == 0
    backward, whole = fit_backward(BackwardBlocks(block_q=block, block_kv=width), shape, tile)
    assert backward.block_q % backward.rows == backward.block_q % backward.strip == 0
    assert backward.chunk_q % backward.block_q == backward.chunk_kv % backward.block_kv == 0
    assert not whole or (backward.chunk_q >= shape.q_len and one_pass(shape, backward.chunk_q))
    if shape.square and not shape.tables:
        assert forward.chunk_kv % forward.block_q == 0, "or the diagonal has no strips"
        assert forward.block_q % forward.block_kv == 0
        assert backward.block_q == backward.block_kv
    if not shape.tables:
        pieces = -(-shape.q_len // forward.block_q)  # a window may ask for smaller blocks than wanted
        assert round_up(shape.q_len, forward.block_q) - shape.q_len < 256 * (pieces + 1) or forward.block_q <= 256
