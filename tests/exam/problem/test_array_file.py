"""Files of arrays: what is written is read, and what is no whole file is none."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ratchet.exam.problem import array_file

DTYPES = st.sampled_from([np.float64, np.float32, np.int8, np.int32, np.bool_, np.complex128, np.uint8])
ARRAYS = st.lists(arrays.arrays(DTYPES, arrays.array_shapes(min_dims=0, min_side=0, max_side=4)), max_size=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kept")


@given(ARRAYS, st.booleans())
def test_what_is_written_is_read(folder, written, by_columns):
    written = [np.asfortranarray(array) for array in written] if by_columns else written
    array_file.write(folder / "a.npy", written)
    read = array_file.read(folder / "a.npy")
    assert [(a.shape, a.dtype, a.tobytes()) for a in read] == [(a.shape, a.dtype, a.tobytes()) for a in written]
    assert os.listdir(folder) == ["a.npy"]


def test_nothing_can_be_written_into_what_is_read(tmp_path):
    array_file.write(tmp_path / "a.npy", [np.arange(3)])
    (array,) = array_file.read(tmp_path / "a.npy")
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_what_is_read_to_be_changed_leaves_the_file_as_it_is(tmp_path):
    array_file.write(tmp_path / "a.npy", [np.arange(3)])
    (array,) = array_file.read(tmp_path / "a.npy", to_change=True)
    array[0] = 7
    (again,) = array_file.read(tmp_path / "a.npy")
    assert [*array, *again] == [7, 1, 2, 0, 1, 2]


def test_a_file_that_was_cut_off_is_none(tmp_path):
    array_file.write(tmp_path / "a.npy", [np.arange(3), np.ones((2, 5))])
    whole = (tmp_path / "a.npy").read_bytes()
    first = whole.index(b"\x93NUMPY", 1)
    for length in set(range(1, len(whole))) - {first}:
        (tmp_path / "b.npy").write_bytes(whole[:length])
        assert array_file.read(tmp_path / "b.npy") == [], length


@pytest.mark.parametrize("content", [b"x", b"\x93NUMPY\x09\x09" + bytes(80), b"PK\x03\x04" + bytes(80)])
def test_another_file_is_none(tmp_path, content):
    (tmp_path / "a.npy").write_bytes(content)
    assert array_file.read(tmp_path / "a.npy") == []
    assert array_file.read(tmp_path / "b.npy") == []


def test_objects_are_not_read(tmp_path):
    with (tmp_path / "a.npy").open("wb") as file:
        np.save(file, np.array([{}], object), allow_pickle=True)
    assert array_file.read(tmp_path / "a.npy") == []


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match="No space"):
        array_file.write(tmp_path / "a.npy", [np.arange(3)])
    assert os.listdir(tmp_path) == []
