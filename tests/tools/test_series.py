"""When two verdict documents are equal, and of which programs a proof is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.imports import HERE
from tests.tiers import slow
from tools.series import countable, differences, main, numbers, programs

DOCUMENT: dict[str, Any] = {
    "seconds": 1.5,
    "verdict": {
        "status": "PASS",
        "reason": "correct, 4 checks in 1.1 s, worst error 0.24",
        "conditions": {"seal": "a", "chip": "v5e"},
        "cycles": [1, 2, 3],
    },
}


def changed(**fields: Any) -> dict[str, Any]:
    return {**DOCUMENT, "verdict": {**DOCUMENT["verdict"], **fields}}


@pytest.mark.parametrize(
    ("sentence", "found"),
    [
        ("0.3726 ms modelled, 1,234 cycles", ["0.3726", "1,234"]),
        ("in 1.1 s, error 1.5e-05", ["1.5e-05"]),
        ("/tmp/a1/kernel.py:35 raised in 'b/c2'", []),
        ("kernel.py:35: at import", ["35"]),
        ("1795789158447252634-kernel_0.3-01-post-ra.txt bundle 0x45c", ["0x45c"]),
        ("unpack_from requires a buffer of at least 6 bytes (actual buffer size is 3)", []),
        ("the buffer of scratch needs 6 bytes", ["6"]),
        ("no number", []),
    ],
)
def test_numbers_of_a_sentence(sentence: str, found: list[str]) -> None:
    assert numbers(sentence) == found


@pytest.mark.parametrize(
    "other",
    [
        DOCUMENT,
        {**DOCUMENT, "seconds": 2.5},
        changed(reason="right: 4 checks in 2.0 s, the largest error is 0.24"),
        changed(conditions={"seal": "b", "chip": "v5e", "series": "a"}),
    ],
    ids=str,
)
def test_what_does_not_count(other: dict[str, Any]) -> None:
    assert list(differences(DOCUMENT, other)) == []
    assert countable(DOCUMENT) == countable({**other, "verdict": {**other["verdict"], "reason": " 4 0.24"}})


@pytest.mark.parametrize(
    ("other", "place"),
    [
        (changed(status="WRONG_VALUES"), ".verdict.status"),
        (changed(reason="correct, 4 checks in 1.1 s, worst error 0.25"), ".verdict.reason"),
        (changed(cycles=[1, 2, 4]), ".verdict.cycles[2]"),
        (changed(cycles=[1, 2]), ".verdict.cycles"),
        (changed(cycles=None), ".verdict.cycles"),
        (changed(conditions={"seal": "a", "chip": "v6e"}), ".verdict.conditions.chip"),
        (changed(more=1), ".verdict.more"),
    ],
    ids=str,
)
def test_what_differs_is_named(other: dict[str, Any], place: str) -> None:
    assert [line.partition(": ")[0] for line in differences(DOCUMENT, other)] == [place]


def test_a_proof_is_of_all_kernels_and_of_the_corpus() -> None:
    found = list(programs(HERE))
    folders = [one.folder for one in found]
    assert len(set(folders)) == len(folders)
    names = {one.name for one in found}
    assert {"kernel.py", "decode_kernel.py", "examples/first.py", "pallas_flash/kernels/flash_forward.py"} <= names
    assert all(one.base in folders[:place] for place, one in enumerate(found) if one.base)
    assert {"rows_attention", "c05_last_column"} <= names
    assert all(one.allowed for one in found if one.group == "cheats")


@pytest.mark.parametrize("names", [slow("first.py"), slow("c05_last_column")])
def test_a_judge_equals_itself(names: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--before", "HEAD", "--only", names]) == 0
    assert "1 equal" in capsys.readouterr().out
