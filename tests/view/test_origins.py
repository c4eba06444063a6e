"""What ``verify`` says of who made the rows."""

from ratchet.values.row import Origin, Origins
from ratchet.view.ledger import origins_text

HERE, ELSEWHERE, UNSIGNED = Origin.HERE, Origin.ELSEWHERE, Origin.UNSIGNED


def said(*origins: Origin, no_key: str = "") -> str:
    return origins_text(Origins(no_key=no_key, by_id={f"row{number}": one for number, one in enumerate(origins)}))


def test_rows_are_counted_by_origin():
    text = said(UNSIGNED, UNSIGNED, ELSEWHERE, HERE, HERE, HERE)
    assert text == "origin: 3 made with this machine's key, 1 signed with another key, 2 not signed"


def test_none_made_here_is_said_too():
    assert said(UNSIGNED) == "origin: 0 made with this machine's key, 1 not signed"
    assert said() == "origin: 0 made with this machine's key"


def test_strangers_after_an_own_row_are_named():
    first, second = said(UNSIGNED, HERE, UNSIGNED, HERE, ELSEWHERE).splitlines()
    assert first == "origin: 2 made with this machine's key, 1 signed with another key, 2 not signed"
    assert second == "not from this machine's key, after a row that is: row2, row4; did you pull them?"


def test_a_long_list_is_cut_and_an_id_cannot_print():
    strangers = {"\x1b[2J": UNSIGNED, **{f"{number}": UNSIGNED for number in range(20)}}
    text = origins_text(Origins(no_key="", by_id={"a": HERE, **strangers}))
    assert text.endswith("7, 8 and 11 more; did you pull them?")
    assert "\x1b" not in text


def test_without_a_key_origin_is_not_known():
    text = said(no_key="no home folder")
    assert text == "origin: not known, only that the rows are consistent, for this machine has no key (no home folder)"
