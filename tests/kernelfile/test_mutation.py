"""What a change of a kernel file touches, by its syntax tree, and taking it apart."""

import ast

import pytest

from ratchet.kernelfile.mutation import mutation, partly, subsets
from ratchet.values.status import Refusal, Status

FILE = b'''"""A kernel."""
import jax

BQ = 256  # rows
BKV: int = 512
A, B = 1, 2

# The block.
def block(x):
    return x + BQ  # so far


@staticmethod
def kernel_fn(x):
    return block(x)


def get_tiling_meta():
    return {"grid": [BQ]}
# the end
'''


def edited(*edits: tuple[bytes, bytes]) -> bytes:
    text = FILE
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return text


KNOB = (b"BQ = 256", b"BQ = 512")
BLOCK = (b"x + BQ", b"x * BQ")
CALL = (b"return block(x)", b"return helper(block(x))")
HELPER = (b"# The block.", b"def helper(x):\n    return x\n\n\n# The block.")
RAISES = (b"A, B", b"if BQ > 128:\n    raise ValueError\nA, B")
UPDATE = (b"# the end", b"jax.config.update('jax_enable_x64', True)\n# the end")
META = (b'{"grid": [BQ]}', b'{"grid": [BKV]}')


@pytest.mark.parametrize(
    ("edits", "said", "parts"),
    [
        ((), "comments", []),
        (((b"# rows", b"# of a block"), (b"x + BQ", b"(x + BQ)")), "comments", []),
        ((HELPER,), "comments", []),
        ((META,), "comments", []),
        (((b"import jax\n", b"import jax\nimport math\n"),), "comments", []),
        ((KNOB,), "one constant, ", ["BQ"]),
        (((b"int = 512", b"int = 1024"),), "one constant, ", ["BKV"]),
        (((b"= 1, 2", b"= 1, 3"),), "one constant, ", ["(A, B)"]),
        ((BLOCK,), "one function, ", ["block"]),
        ((CALL, HELPER, META), "one function, ", ["kernel_fn"]),
        (((b"@staticmethod\n", b""),), "one function, ", ["kernel_fn"]),
        ((KNOB, BLOCK), "2 at once: ", ["BQ", "block"]),
        ((BLOCK, CALL, HELPER), "2 at once: ", ["block", "kernel_fn"]),
        (((b"BKV: int = 512\n", b""), KNOB), "2 at once: ", ["BQ", "BKV"]),
        ((RAISES, KNOB), "2 at once: ", ["BQ", "if BQ > 128:"]),
        (((b"import jax\n", b"import jax\njax.jit = print\n"), KNOB), "2 at once: ", ["jax.jit", "BQ"]),
        ((UPDATE, KNOB), "2 at once: ", ["BQ", "jax.config.update('jax_enable_x64', True)"]),
        (((b"# the end", b'"""The end."""'),), "comments", []),
    ],
)
def test_a_change_is_classified(edits, said, parts):
    change = mutation(FILE, edited(*edits), "kernel.py")
    assert str(change).startswith(said)
    assert [part.name for part in change.parts] == parts
    assert change.compound is ("at once" in said)


def test_what_is_no_python_is_refused():
    with pytest.raises(Refusal, match=r"kernel\.py") as caught:
        mutation(FILE, b"def (", "kernel.py")
    assert caught.value.status is Status.SYNTAX_ERROR


@pytest.mark.parametrize("source", [b"", b"# nothing\n", b"\n\n"])
def test_an_empty_file_removes_all(source):
    assert [part.name for part in mutation(b"A = 1\nB = 2\n", source, "kernel.py").parts] == ["A", "B"]
    assert partly(b"A = 1\n", source, [], "kernel.py") == b"A = 1\n" + source


def test_a_change_is_taken_apart_and_put_together():
    after = edited(KNOB, BLOCK, CALL, HELPER, META)
    assert partly(FILE, after, {"BQ", "block", "kernel_fn"}, "kernel.py") == after
    for names, edits in (({"BQ"}, [KNOB]), ({"block", "kernel_fn"}, [BLOCK, CALL]), (set(), [])):
        only = partly(FILE, after, names, "kernel.py")
        assert only.split() == edited(*edits, HELPER, META).split()


def test_what_was_removed_stays_where_it_was():
    after = edited((b"BKV: int = 512\n", b""), BLOCK)
    assert partly(FILE, after, {"block"}, "kernel.py") == edited(BLOCK)
    assert partly(FILE, after, {"BKV"}, "kernel.py") == edited((b"BKV: int = 512\n", b""))


def test_what_a_file_does_beside_its_definitions_is_a_part_of_its_own():
    for edit, name in ((RAISES, "if BQ > 128:"), (UPDATE, "jax.config.update('jax_enable_x64', True)")):
        for before, after in ((FILE, edited(edit)), (edited(edit), FILE)):
            assert [part.name for part in mutation(before, after, "kernel.py").parts] == [name]
            assert partly(before, after, {name}, "kernel.py").split() == after.split()
            assert partly(before, after, set(), "kernel.py").split() == before.split()


def test_several_statements_on_a_line_stay_python():
    before, after = b"A = 1; B = 2\nC = 3\n", b"A = 5; B = 6\nC = 4\n"
    change = mutation(before, after, "kernel.py")
    assert [part.name for part in change.parts] == ["A", "B", "C"]
    for names in subsets([part.name for part in change.parts]):
        ast.parse(partly(before, after, names, "kernel.py"))


def test_parts_are_tried_alone_and_left_out_alone():
    assert subsets(["a", "b"]) == [("a",), ("b",)]
    assert len(subsets(["a", "b", "c"])) == 6
    many = subsets(list("abcde"))
    assert len(many) == 10
    assert ("a",) in many
    assert ("b", "c", "d", "e") in many


BODY = b"""
def helper(x):
    return x + 1


def body(x_ref, o_ref):
    o_ref[...] = helper(x_ref[...])


def kernel_fn(x):
    return pallas_call(body, out_shape=x)(x)
"""


def test_a_scratch_buffer_is_one_change_of_the_body_and_of_what_calls_it() -> None:
    after = BODY.replace(b"def body(x_ref, o_ref):", b"def body(x_ref, o_ref, acc):").replace(
        b"out_shape=x)", b"out_shape=x, scratch_shapes=[1])"
    )
    change = mutation(BODY, after, "k.py")
    assert not change.compound
    assert str(change) == "one thing, body with kernel_fn"


def test_a_helper_that_went_into_its_caller_is_one_change() -> None:
    after = BODY.replace(b"def helper(x):\n    return x + 1\n", b"").replace(b"helper(x_ref[...])", b"x_ref[...] + 1")
    change = mutation(BODY, after, "k.py")
    assert not change.compound
    assert change.changes == (("body", "helper"),)


def test_two_functions_that_keep_their_parameters_are_two_changes() -> None:
    after = BODY.replace(b"x + 1", b"x + 2").replace(b"out_shape=x)", b"out_shape=x, grid=(1,))")
    change = mutation(BODY, after, "k.py")
    assert str(change) == "2 at once: helper, kernel_fn"
