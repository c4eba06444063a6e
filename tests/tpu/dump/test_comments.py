"""Comments of a listing: cutting at each begin gives what reading token by token does, or leaves it to that."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ratchet.tpu.dump import comments
from ratchet.tpu.dump.comments import BadComment

PIECES = ["/*", "*/", "/", "*", "a=", ' loc("', '"', '":3', "\\", " ", "x", "\n", "vst_source="]


@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
def test_two_ways_to_set_comments_aside_agree(body: str) -> None:
    try:
        expected = comments._by_tokens(body)
    except BadComment:
        assert comments._by_pieces(body) is None
        return
    assert comments._by_pieces(body) in (None, expected)


def test_comments_that_say_the_same_share_a_number() -> None:
    text, notes = comments.set_aside('a /* loc("x /* y":3:4) */ b /* z */ c /* loc("x /* y":3:4) */')
    assert text == "a \x010\x02 b \x011\x02 c \x010\x02"
    assert notes == ['loc("x /* y":3:4)', "z"]
