"""Arrays and answers that a values child left are data: of limited size, checked, never code."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from ratchet.exam.judge.responses import answer_in, read_arrays
from ratchet.exam.judge.schedule import timeline_in
from ratchet.values.status import Status
from tests.refusals import refused

LIMIT = 1 << 20


def stored(**arrays: np.ndarray) -> bytes:
    data = io.BytesIO()
    np.savez(data, **arrays)
    return data.getvalue()


def bomb() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bytes(4 * LIMIT))
    return data.getvalue()


def test_arrays_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(stored(x=np.arange(3)))
    assert read_arrays(tmp_path / "a.npz", LIMIT)["x"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "BadZipFile"),
        (stored(x=np.arange(3))[:-30], "BadZipFile"),
        (stored(x=np.array([{}])), "allow_pickle"),
        (bomb(), "unpacks to"),
        (bytes(LIMIT + 1), "larger than"),
    ],
    ids=["empty", "cut off", "objects", "bomb", "large"],
)
def test_what_are_no_arrays_is_refused(data: bytes, what: str, tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(data)
    with refused(Status.CANNOT_VERIFY, what):
        read_arrays(tmp_path / "a.npz", LIMIT)


def test_an_array_that_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(stored(x=np.arange(3)))
    with refused(Status.CANNOT_VERIFY, "there is no y"):
        read_arrays(tmp_path / "a.npz", LIMIT)["y"]
    with refused(Status.CANNOT_VERIFY, "FileNotFoundError"):
        read_arrays(tmp_path / "b.npz", LIMIT)


@pytest.mark.parametrize("answer", [{"status": "NO_SUCH"}, {"worst": "0"}, {"control": {}}, [], {"seconds": None}])
def test_a_damaged_answer_is_refused(answer: object, tmp_path: Path) -> None:
    (tmp_path / "answer.json").write_text(json.dumps(answer))
    with refused(Status.CANNOT_VERIFY, "left no usable answer"):
        answer_in(tmp_path / "answer.json")


def test_an_answer_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with refused(Status.CANNOT_VERIFY, "left no usable answer"):
        answer_in(tmp_path / "answer.json")


@pytest.mark.parametrize("data", [b"", b"{}", b'{"timeline": [], "summary": ""}', b'{"refused": ["PASS"]}'])
def test_a_damaged_timeline_is_refused(data: bytes) -> None:
    with refused(Status.INTERNAL, "left no timeline"):
        timeline_in(data)


def test_what_the_machine_refused_is_refused() -> None:
    with refused(Status.DEADLOCK, "why"):
        timeline_in(b'{"refused": ["DEADLOCK", "why"]}')
