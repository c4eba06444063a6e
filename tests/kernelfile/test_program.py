"""What is read of a kernel's call: its index maps, what it shares with others, and names that mean one thing."""

from __future__ import annotations

import ast

import pytest

from ratchet.kernelfile.program import Kernel, kernels
from ratchet.kernelfile.syntax import expression
from tests.advise.sources import ATTENTION, PRODUCT, file_of

LEFT = "lambda i, j, k: (i, k)"
PARAMS = 'tpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary"))'
CALL = "    return plas.pallas_call(\n"


def read(text: str, *changes: tuple[str, str]) -> Kernel:
    """The first kernel of a file with changes made."""
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return kernels(file_of(text))[0]


@pytest.mark.parametrize(
    ("index", "axes"),
    [
        (LEFT, [{0}, {2}]),
        ("lambda i, j, k: (k + jax.numpy.minimum(i, 1), 0)", [{0, 2}, set()]),
        ("None", []),
        ("lambda *at: (at[0], at[2])", None),
        ("lambda i, *at: (i, at[1])", None),
        ("lambda i, j, k=0: (i, k)", None),
        ("lambda i, j: (i, j)", None),
        ("lambda i, j, k, table: (i, table[k])", None),
        ("lambda i, j, k: place(i, k)", None),
        ("place", None),
    ],
)
def test_which_grid_dimensions_an_index_map_uses(index, axes):
    ref = read(PRODUCT, (LEFT, index)).by_name["left"]
    assert ref.axes == (None if axes is None else tuple(map(frozenset, axes)))
    assert (ref.index is None) == (not axes)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("grid=(TOKENS // SIDE, TOKENS // TILE[1], TOKENS // SIDE)", "grid=y"),
        ("grid=(TOKENS // SIDE, TOKENS // TILE[1], TOKENS // SIDE)", "grid=(*y, TOKENS)"),
        ("plas.program_id(2) == 0", "plas.program_id(SIDE // 128) == 0"),
        ("plas.program_id(2) == 0", "step() == 0"),
    ],
)
def test_no_index_map_can_be_read_of_a_grid_that_is_not_known_or_asked_for_elsewhere(old, new):
    step = ("\n\ndef _add", "\n\ndef step():\n    return plas.program_id(2)\n\n\ndef _add")
    assert [ref.axes for ref in read(PRODUCT, (old, new), step).refs if ref.role == "in"] == [None, None]


def test_a_block_without_an_index_map_never_moves_and_a_map_may_have_a_name():
    named = read(PRODUCT, (CALL, f"    index = {LEFT}\n{CALL}"), (f"SIDE), {LEFT}", "SIDE), index"))
    assert named.by_name["left"].axes == (frozenset({0}), frozenset({2}))
    assert named.by_name["left"].side(2) == 1
    assert named.by_name["left"].side(1) is None
    assert not named.by_name["left"].shared


SPEC = f"plas.BlockSpec((SIDE, SIDE), {LEFT})"


@pytest.mark.parametrize(
    ("held", "old", "new", "shared"),
    [
        (f"spec = {SPEC}", SPEC, "spec", []),
        (f"spec = {SPEC}\n    print(spec)", SPEC, "spec", ["left"]),
        (f"index = {LEFT}\n    print(index)", f"SIDE), {LEFT}", "SIDE), index", ["left"]),
        ("block = (SIDE, TILE[1])", "((SIDE, TILE[1]), lambda", "(block, lambda", ["right", "out"]),
        ("block = (SIDE, TILE[1])", "VMEM((SIDE, TILE[1])", "VMEM(block", []),
        ("block = (SIDE, TILE[1])\n    print(block)", "VMEM((SIDE, TILE[1])", "VMEM(block", ["sums"]),
    ],
)
def test_what_something_else_reads_is_shared(held, old, new, shared):
    kernel = read(PRODUCT, (old, new), (CALL, f"    {held}\n{CALL}"))
    assert [ref.name for ref in kernel.refs] == ["left", "right", "out", "sums"]
    assert [ref.name for ref in kernel.refs if ref.shared] == shared


def test_references_of_one_call_with_the_same_blocks_share_nothing_with_others():
    assert not any(ref.shared for ref in read(ATTENTION).refs)
    twice = read(ATTENTION, ("    return plas.pallas_call", "    print(walked)\n    return plas.pallas_call"))
    assert [ref.name for ref in twice.refs if ref.shared] == ["two", "three"]


@pytest.mark.parametrize(
    ("params", "held", "count"),
    [
        (PARAMS, "", 3),
        ("tpu.CompilerParams(vmem_limit_bytes=1 << 20)", "", 0),
        ("params", f"params = {PARAMS}", 3),
        ("params", f"params = {PARAMS}\n    print(params)", None),
        ("params", "", None),
        ("tpu.CompilerParams(dimension_semantics=said)", 'said = ("parallel", "parallel", "arbitrary")', 3),
        ("tpu.CompilerParams(dimension_semantics=said)", 'said = ("parallel", "parallel")', None),
        ('dict(mosaic=dict(dimension_semantics=("parallel",) * 3))', "", None),
        ("tpu.CompilerParams(**y)", "", None),
    ],
)
def test_what_a_call_says_of_its_dimensions(params, held, count):
    said = read(PRODUCT, (PARAMS, params), (CALL, f"    {held}\n{CALL}")).semantics
    assert (None if said is None else len(said.elts)) == count


def test_an_expression_is_known_where_no_name_of_it_means_something_else_in_between():
    kernel = read(PRODUCT)
    assert kernel.known(expression("TOKENS // SIDE"))
    nested = ("    sums[...] +=", "    def _more(SIDE):\n        return SIDE\n\n    sums[...] +=")
    assert not read(PRODUCT, nested).known(expression("TOKENS // SIDE"))
    assert not read(PRODUCT, ("kernel_fn(x, y)", "kernel_fn(x, y, SIDE=1)")).known(expression("TOKENS // SIDE"))
    assert read(PRODUCT, ("kernel_fn(x, y)", "kernel_fn(x, y, *, SIDE)")).number(expression("SIDE * 2")) is None
    assert kernel.value(expression("SIDE * i"), i=2) == 512


def test_what_the_call_is_given_is_known_by_reference():
    operands = read(PRODUCT).operands
    assert operands is not None
    assert {name: ast.unparse(one) for name, one in operands.items()} == {"left": "x", "right": "y"}
    assert read(PRODUCT, (")(x, y)\n", ")(*(x, y))\n")).operands is None
    assert read(PRODUCT, (")(x, y)\n", ")\n")).operands is None
