"""Each edit on kernels of other names and shapes: what it changes, nothing else, where it is silent; and the values."""

from __future__ import annotations

import ast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ratchet.advise.advice import Edit
from ratchet.advise.advise import rewrites
from ratchet.kernelfile.mutation import mutation
from ratchet.kernelfile.syntax import File
from ratchet.view.advise import ORIGINS
from tests.advise.sources import ATTENTION, PRODUCT, ROWS, changed, edits, file_of, once
from tests.imports import HERE

FILES = (*sorted((HERE / "examples").glob("*.py")), HERE / "kernel.py", HERE / "decode_kernel.py")
FROZEN = ("reference_fn", "generate_inputs", "compute_flops", "KERNEL_NAME", "PROBLEM_DESCRIPTION")


def texts() -> list[tuple[str, str]]:
    ours = [("attention", ATTENTION), ("product", PRODUCT), ("rows", ROWS)]
    return ours + [(path.name, path.read_text()) for path in FILES]


@pytest.mark.parametrize(("name", "text"), [pytest.param(*one, id=one[0]) for one in texts()])
def test_an_edit_parses_and_leaves_the_problem_as_it_is(name, text):
    for one in rewrites(File.of(text.encode(), name)):
        ast.parse(one.after)
        parts = [part.name for part in mutation(text.encode(), one.after, name).parts]
        assert one.after != text.encode()
        assert not set(parts) & set(FROZEN)
        assert len(parts) <= 2, parts


@pytest.mark.parametrize(
    ("text", "subject", "value"),
    [
        (ATTENTION, "ACROSS", 128),
        (ATTENTION, "ALONG", 512),
        (PRODUCT, "SIDE", 512),
        (PRODUCT, "TILE[1]", 256),
        (ROWS, "LINES", 32),
    ],
)
def test_a_block_doubles_where_it_is_written(text, subject, value):
    (one,) = [one for one in edits(text, Edit.LARGER) if one.point == {subject: value}]
    gone, come = changed(text, one.after.decode())
    assert gone[1:].replace(str(value // 2), str(value)) == come[1:]
    assert one.factor == 2


def test_what_the_problem_or_an_input_needs_is_no_block():
    tied = ATTENTION.replace("(TOKENS, WIDTH), np.bfloat16)", "(TOKENS, ALONG // 2), np.bfloat16)")
    assert {one.subject for one in edits(tied, Edit.LARGER)} == {"ACROSS"}
    subjects = {one.subject for text in (ATTENTION, PRODUCT, ROWS) for one in edits(text, Edit.LARGER)}
    assert not subjects & {"TOKENS", "WIDTH", "TILE[0]"}


def test_a_block_that_no_longer_divides_is_not_advised():
    odd = ATTENTION.replace("TOKENS = 512", "TOKENS = 768")
    assert {512, 1024} & {one.point["ALONG"] for one in edits(odd, Edit.LARGER) if "ALONG" in one.point} == set()
    assert [one.point for one in edits(odd, Edit.SMALLER) if "ALONG" in one.point] == [{"ALONG": 128}]


LAST = "@plas.when(there == TOKENS // ALONG - 1)"
OTHERWISE = {
    Edit.RESIDENT: [
        ("lambda i, j: (i, 0)),\n        scratch", "lambda i, j: (j, 0)),\n        scratch"),
        ("two[...], (((1,)", "two[0:ALONG, :], (((1,)"),
        ("lambda i, j: (j, 0))", "lambda i, j: (j * 1, 0))"),
        ("lambda i, j: (j, 0))", "lambda i, j: (j, 0), pipeline_mode=plas.Buffered(3))"),
        ("TOKENS // ALONG),\n        in_specs", "a.shape[0] // ALONG),\n        in_specs"),
        ("seen = 0.125", "last = plas.num_programs(1)\n        seen = 0.125"),
        ("def _mix(one, two", "def _mix(*refs, two"),
        ("        _mix,\n", "        functools.partial(_mix, 1),\n"),
        ("TOKENS = 512\n", "TOKENS = 1 << 20\n"),
        ("        _mix,\n", "        _mix,\n        **more,\n"),
        (
            f"    {LAST}\n    def _end():\n",
            f"    def end():\n        pass\n\n    {LAST}\n    def _end():\n        end()\n",
        ),
    ],
    Edit.MASK: [
        ("-1e30)", "0.0)"),
        ("mine >= its", "mine != its"),
        ("mine >= its", "mine * 2 >= its"),
        ("there * ALONG + jax", "one[0, 0] + jax"),
        ("np.where(mine >= its, seen, -1e30)", "np.where(mine >= its, seen + 1, -1e30)"),
        ("        seen = np.where", "        pass; seen = np.where"),
    ],
    Edit.SCALE: [
        ("0.125 *", "there *"),
        ("0.125 *", "0.125 +"),
        ("one[...], two", "one[...] + 1, two"),
    ],
    Edit.BASE_2: [
        ("np.exp(top[...] - highest)", "np.exp(top[...])"),
        ("np.exp(top[...] - highest)", "np.exp(top[...] - here)"),
        ("np.exp(seen - highest)", "np.exp(seen - highest) + seen"),
        ("(mixed[...] / total[...])", "(mixed[...] / total[...] + top[...])"),
        ("top[...] = highest", "top[...] = highest + 1"),
        ("-1e30)", "-10.0)"),
        ("0.125 *", ""),
    ],
    Edit.WIDE: [
        ("ALONG = 256", "ALONG = 200"),
        ("part = np.exp(seen - highest)", "part = np.exp(unknown(seen) - highest)"),
        ("part = np.exp(seen - highest)", "part = np.exp(seen - highest[:, 0:1])"),
        ("top[...] = highest", "helper(top)"),
        ("tpu.VMEM((ACROSS, 1), np.float32)", "tpu.VMEM((ACROSS, 1), np.int32)"),
    ],
    Edit.LANES: [
        ("total[...] * less", "np.maximum(total[...], less)"),
        ("np.zeros_like(total)", "np.ones_like(total)"),
        ("np.sum(part, axis=-1, keepdims=True)", "np.sum(part, axis=0, keepdims=True)"),
        ("top[...] = highest", "top[...] = highest\n        total[...] = total[...] + 1"),
    ],
    Edit.STRIPS: [
        ("np.max(seen, axis=-1", "np.max(seen, axis=0"),
        ("np.exp(seen - highest)", "np.exp((seen - highest).T)"),
        ("top[...] = highest", "top[0:8, :] = highest[0:8, :]"),
        ("np.exp(top[...] - highest)", "np.cumsum(top[...] - highest)"),
        ("ACROSS = 64", "ACROSS = 16"),
    ],
}
"""What keeps an edit from being made to ``ATTENTION``, or to that with another edit made first."""
FIRST = {Edit.LANES: once(ATTENTION, Edit.WIDE), Edit.STRIPS: once(ATTENTION, Edit.MASK)}


@pytest.mark.parametrize(
    ("edit", "old", "new"), [(edit, *change) for edit, changes in OTHERWISE.items() for change in changes]
)
def test_what_is_written_otherwise_stays(edit, old, new):
    text = FIRST.get(edit, ATTENTION)
    assert old in text
    assert edits(text.replace(old, new), edit) == []


def test_the_last_grid_dimension_becomes_a_loop():
    text = once(ATTENTION, Edit.RESIDENT)
    assert "grid=(TOKENS // ACROSS,)," in text
    assert "plas.BlockSpec((TOKENS, WIDTH), lambda i: (0, 0))" in text
    assert "@plas.loop(0, np.minimum(TOKENS // ALONG, plas.cdiv(here * ACROSS + ACROSS, ALONG)))" in text
    assert "two[plas.ds(plas.multiple_of(there * ALONG, ALONG), ALONG), :]" in text
    assert "tpu.CompilerParams(vmem_limit_bytes=100 << 20)" in text
    assert '"grid": [TOKENS // ACROSS]' in text
    assert "    # What comes later is not seen.\n" in text
    assert "program_id(1)" not in text
    text = once(ATTENTION.replace("@plas.when(there == 0)", "@plas.when(there == 1)"), Edit.RESIDENT)
    assert "@plas.loop(0, TOKENS // ALONG)" in text, "guards that agree on nothing leave it as long as it was"
    assert "@plas.when(there == 1)" in text


def test_a_loop_without_a_guard_takes_all_turns_and_asks_for_its_place_by_a_name_of_its_own():
    text = once(PRODUCT, Edit.RESIDENT)
    assert "@plas.loop(0, TOKENS // SIDE)\n    def _steps(step):\n        sums[...] += np.dot(" in text
    assert "left[:, plas.ds(plas.multiple_of(step * SIDE, SIDE), SIDE)]" in text
    assert "    def _clear():" in text
    assert "\n    _clear()\n" in text
    assert 'dimension_semantics=("parallel", "parallel"), vmem_limit_bytes=100 << 20)' in text


def test_a_mask_is_made_where_it_matters():
    text = once(ATTENTION, Edit.MASK)
    assert changed(ATTENTION, text) == [
        "- @plas.when(there * ALONG < here * ACROSS + ACROSS)",
        "- def _see():",
        "+ def _see(masked):",
        "+ if masked:",
        "- seen = np.where(mine >= its, seen, -1e30)",
        "+ seen = np.where(mine >= its, seen, -1e30)",
        "+ unmasked = there * ALONG + ALONG - 1 <= here * ACROSS",
        "+ plas.when(np.logical_and(there * ALONG < here * ACROSS + ACROSS, unmasked))(lambda: _see(False))",
        "+ plas.when(np.logical_and(there * ALONG < here * ACROSS + ACROSS, np.logical_not(unmasked)))"
        "(lambda: _see(True))",
    ]
    assert edits(text, Edit.MASK) == []


def test_a_mask_without_a_guard_gets_one():
    bare = ATTENTION.replace("    @plas.when(there * ALONG < here * ACROSS + ACROSS)\n    def _see():\n", "")
    lines = bare.split("\n")
    first = next(at for at, line in enumerate(lines) if "seen = 0.125" in line)
    last = next(at for at, line in enumerate(lines) if "top[...] = highest" in line)
    lines[first : last + 1] = [line[4:] for line in lines[first : last + 1]]
    bare = "\n".join(lines)
    text = once(bare, Edit.SKIP)
    assert "@plas.when(there * ALONG <= here * ACROSS + ACROSS - 1)\n    def _attend():\n        seen = 0.125" in text
    assert len(edits(text, Edit.MASK)) == 1


def test_a_factor_goes_to_an_operand():
    text = once(ATTENTION, Edit.SCALE)
    assert "seen = jax.lax.dot_general(\n            (one[...].astype(np.float32) * (0.125)).astype(one.dtype)," in text
    assert edits(text, Edit.SCALE) == []


def test_exponentials_of_differences_of_scores_go_to_base_2():
    alone, scaled = (one.after.decode() for one in edits(ATTENTION, Edit.BASE_2))
    assert alone.count("exp2(") == scaled.count("exp2(") == 2
    assert "seen = 1.4426950408889634 * (0.125) * jax.lax.dot_general(" in alone
    assert "(one[...].astype(np.float32) * (1.4426950408889634 * (0.125))).astype(one.dtype)" in scaled
    assert scaled == once(once(ATTENTION, Edit.SCALE), Edit.BASE_2)
    assert edits(scaled, Edit.BASE_2) == []


def test_columns_become_as_wide_as_the_lanes():
    text = once(ATTENTION, Edit.WIDE)
    assert text.count("tpu.VMEM((ACROSS, 128), np.float32)") == 2
    assert changed(ATTENTION, text)[:2] == [
        "- part = np.exp(seen - highest)",
        "+ part = np.exp(seen - np.tile(highest, (1, ALONG // 128)))",
    ]


def test_fewer_lanes_than_a_register_are_cut_and_a_plain_column_is_spread():
    narrow = ATTENTION.replace("WIDTH = 128", "WIDTH = 64")
    assert "(less)[:, :WIDTH] * mixed[...]" in once(narrow, Edit.WIDE)
    plain = ATTENTION.replace("top[...] = highest", "top[...] = np.max(seen, axis=1, keepdims=True)")
    assert "np.broadcast_to(np.max(seen, axis=1, keepdims=True), top.shape)" in once(plain, Edit.WIDE)


def test_wide_sums_are_added_up_per_lane():
    wide = once(ATTENTION, Edit.WIDE)
    assert once(ATTENTION, Edit.LANES) == once(wide, Edit.LANES)
    text = once(wide, Edit.LANES)
    assert "sum(part[:, at : at + 128] for at in range(0, ALONG, 128)) + total[...] * less" in text
    assert "(mixed[...] / np.sum(total[...], axis=1, keepdims=True))" in text
    assert edits(text, Edit.LANES) == []


def test_a_block_is_taken_in_strips_of_its_rows_and_a_mask_made_where_it_matters_to_any_of_them():
    text = once(once(ATTENTION, Edit.MASK), Edit.STRIPS)
    assert "\nSTRIP = 32\n" in text
    assert "        for row in range(0, ACROSS, STRIP):\n            seen = 0.125" in text
    assert "one[row : row + STRIP, :]" in text
    assert "here * ACROSS + (row + jax.lax.broadcasted_iota(np.int32, (STRIP, ALONG), 0))" in text
    assert "there * ALONG + jax.lax.broadcasted_iota(np.int32, (STRIP, ALONG), 1)" in text
    assert "two[...]" in text
    assert "STRIP" in {one.subject for edit in (Edit.LARGER, Edit.SMALLER) for one in edits(text, edit)}
    text = once(once(ATTENTION, Edit.STRIPS), Edit.MASK)
    assert "unmasked = there * ALONG + ALONG - 1 <= here * ACROSS\n" in text
    assert "            if masked:\n                seen = np.where" in text


def test_the_matrix_units_get_what_is_stored():
    text = once(PRODUCT, Edit.NARROW)
    assert "left[...], right[...], preferred_element_type=np.float32" in text
    precise = PRODUCT.replace("preferred_element_type=np.float32", "preferred_element_type=np.float32, precision=1")
    assert edits(precise, Edit.NARROW) == []
    mixed = PRODUCT.replace("left[...].astype(np.float32)", "left[...]")
    assert edits(mixed, Edit.NARROW) == []


def test_a_division_per_row_becomes_a_multiplication():
    assert "out[...] = weights * (1.0 / np.sum(weights, axis=1, keepdims=True))" in once(ROWS, Edit.DIVIDE)
    by_element = ROWS.replace("weights / np.sum(weights, axis=1, keepdims=True)", "weights / x[...]")
    assert edits(by_element, Edit.DIVIDE) == edits(ROWS.replace("weights / np", "2.0 / np"), Edit.DIVIDE) == []


def test_loops_of_a_known_length_are_unrolled():
    text = ROWS.replace(
        "    out[...] = weights", "    plas.loop(0, WIDTH // 128)(lambda at: None)\n    out[...] = weights"
    )
    assert [one.factor for one in edits(text, Edit.UNROLL)] == [2, 4]
    assert "plas.loop(0, WIDTH // 128, unroll=2)" in edits(text, Edit.UNROLL)[0].after.decode()
    assert edits(text.replace("WIDTH // 128", "x[0, 0]"), Edit.UNROLL) == []


def test_every_edit_says_where_it_is_from():
    assert set(ORIGINS) == set(Edit) - {Edit.PAIR}


@pytest.mark.parametrize("text", ["", "x = 1\n", "def kernel_fn():\n    return 1\n", "import jax\njax.jit(f)(1)\n"])
def test_a_file_without_a_kernel_gets_no_advice(text):
    assert rewrites(file_of(text)) == ()


def test_a_file_with_a_mark_and_other_line_ends_keeps_them():
    source = b"\xef\xbb\xbf" + ATTENTION.replace("\n", "\r\n").encode()
    for one in rewrites(File.of(source, "other.py")):
        assert one.after.startswith(b"\xef\xbb\xbf")
        ast.parse(one.after)


# --- edited kernels compute what they computed: all edits on top of each other, interpreted on a CPU ---


CHAIN = (Edit.MASK, Edit.RESIDENT, Edit.SCALE, Edit.BASE_2, Edit.WIDE, Edit.LANES, Edit.STRIPS, Edit.DIVIDE)


def values(text: str) -> np.ndarray:
    """What the kernel makes of the same random inputs."""
    names: dict[str, object] = {}
    exec(compile(text.replace("    )(a, b, c)", "    interpret=True)(a, b, c)"), "kernel", "exec"), names)
    shape = (names["TOKENS"], names["WIDTH"])
    arrays = [jax.random.normal(key, shape, jnp.bfloat16) for key in jax.random.split(jax.random.key(0), 3)]
    return np.asarray(names["kernel_fn"](*arrays), np.float32)  # type: ignore[operator]


@pytest.mark.slow
def test_an_attention_kernel_with_every_edit_attends_as_before():
    text = ATTENTION.replace(
        "    )(a, b, c)", "        compiler_params=tpu.CompilerParams(vmem_limit_bytes=2**26),\n    )(a, b, c)"
    )
    before = values(text)
    for edit in CHAIN:
        (one,) = edits(text, edit)
        text = one.after.decode()
    after = values(text)
    assert "exp2" in text
    assert np.abs(before).max() > 1
    np.testing.assert_allclose(after, before, atol=0.03)
