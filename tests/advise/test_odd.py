"""Kernels that are valid and written as no pattern expects: nothing is raised, and nothing is changed for others."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest

from ratchet.advise.advice import Edit
from ratchet.advise.advise import rewrites
from ratchet.kernelfile.program import calls, is_call
from tests.advise.sources import ATTENTION, PRODUCT, ROWS, edits, file_of, held
from tests.advise.test_heads import ABREAST, HEADS, PAGED
from tests.advise.test_outside import CAST, TRANSPOSED
from tests.advise.test_staggered import LOOP, LOSS, PARTED, STAGES, STRIPS
from tests.tiers import cases

BASES = {
    "attention": ATTENTION, "product": PRODUCT, "rows": ROWS, "loop": LOOP, "strips": STRIPS, "parted": PARTED,
    "stages": STAGES, "pages": PAGED, "heads": HEADS, "abreast": ABREAST, "loss": LOSS, "cast": CAST,
}  # fmt: skip
"""Files with something for every pattern."""


def keywords(**values: str) -> Callable[[ast.AST], None]:
    """Other values of arguments by their names, where a call has them."""

    def change(node: ast.AST) -> None:
        for one in node.keywords if isinstance(node, ast.Call) else ():
            if one.arg in values:
                one.value = ast.parse(values[one.arg], mode="eval").body

    return change


def maps(text: str, of: str = "pallas_call") -> Callable[[ast.AST], None]:
    """Another index map for every block inside of a call, or of one argument of calls."""

    def change(node: ast.AST) -> None:
        if is_call(node, of) or (isinstance(node, ast.keyword) and node.arg == of):
            for one in calls(node, "BlockSpec"):
                one.args[1:] = [ast.parse(text, mode="eval").body]

    return change


def by_name(*names: str) -> Callable[[ast.AST], None]:
    """The arguments of some functions by their names."""

    def change(node: ast.AST) -> None:
        if is_call(node, *names):
            node.keywords += [ast.keyword(arg=f"a{at}", value=one) for at, one in enumerate(node.args)]
            node.args = []

    return change


ODD = {
    "no grid": keywords(grid="()"),
    "one number": keywords(grid="4"),
    "one of one": keywords(grid="(4,)"),
    "a grid of somewhere": keywords(grid="sizes"),
    "starred": keywords(grid="(*sizes, 2)", in_specs="[*specs]"),
    "any number of places": maps("lambda *at: (at[0], 0)"),
    "too few places": maps("lambda: (0, 0)"),
    "any number of an operand's places": maps("lambda *at: (at[0], 0)", "in_specs"),
    "too few of an operand's places": maps("lambda i: (i, 0)", "in_specs"),
    "one side": maps("lambda i: i"),
    "a named map": maps("place"),
    "no blocks": maps("None"),
    "scratch by a name": keywords(scratch_shapes="scratch"),
    "scratch as a dictionary": keywords(scratch_shapes="{'sums': scratch}"),
    "scratch that is made": keywords(scratch_shapes="scratch()"),
    "no scratch": keywords(scratch_shapes="()"),
    "no outputs": keywords(out_specs="()", out_shape="()"),
    "specs by a name": keywords(in_specs="specs", out_specs="specs[0]"),
    "other parameters": keywords(compiler_params="{'mosaic': {'dimension_semantics': said}}"),
    "iotas by name": by_name("broadcasted_iota"),
    "reductions by name": by_name("max", "sum", "mean", "where", "minimum"),
    "products by name": by_name("dot", "dot_general"),
    "places by name": by_name("program_id", "num_programs"),
    "loops by name": by_name("loop", "ds", "multiple_of", "when"),
    "blocks by name": by_name("BlockSpec", "VMEM", "ShapeDtypeStruct", "astype"),
}


@pytest.mark.parametrize("base", cases(("attention", "product", "parted", "heads"), BASES))
@pytest.mark.parametrize("odd", ODD)
def test_no_pattern_raises(base, odd):
    tree = ast.parse(BASES[base])
    for node in ast.walk(tree):
        ODD[odd](node)
    for one in rewrites(file_of(ast.unparse(tree))):
        ast.parse(one.after)


POOL = "pl.BlockSpec((KV_HEADS, 1, PAGE, HEAD_DIM), lambda b, p, table: (0, table[b, p], 0, 0))"
SQUARE = "plas.BlockSpec((SIDE, SIDE), lambda i, j, k: (i, k))"


@pytest.mark.parametrize(
    ("text", "edit", "what"),
    [
        (PAGED, Edit.GROUP, "pl.BlockSpec((1, 1, PAGE, HEAD_DIM), lambda b, h, p, table: (h, table[b, p], 0, 0))"),
        (PAGED, Edit.GROUP, "(1, 1, PAGE, HEAD_DIM)"),
        (PAGED, Edit.GROUP, "pltpu.VMEM((GROUP, 1), jnp.float32)"),
        (HEADS, Edit.PAGES, POOL),
        (PRODUCT, Edit.RESIDENT, SQUARE),
        (PRODUCT, Edit.SWAP, "lambda i, j, k: (i, k)"),
        (PRODUCT, Edit.SWAP, '("parallel", "parallel", "arbitrary")'),
        (PRODUCT, Edit.SWAP, 'tpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary"))'),
        (TRANSPOSED, Edit.TRANSPOSE, "(SIDE, TILE[1])"),
    ],
)
def test_what_something_else_reads_is_not_changed_in_place(text, edit, what):
    if edit is not Edit.TRANSPOSE:
        assert edits(held(text, what), edit)
    assert edits(held(text, what, "print(held)"), edit) == []
