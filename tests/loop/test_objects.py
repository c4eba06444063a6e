"""What git stores, read by one command."""

import pytest

from ratchet.loop.objects import Objects, contents
from ratchet.loop.plumbing import Git
from ratchet.values.status import Refusal, Status


def test_blobs_are_read_as_they_were_stored(stage):
    git = Git(stage.root)
    texts = [b"", b"one\ntwo\n\n", b"\0\xff", b"1 blob 3\nabc"]
    blobs = [Objects(git).store(text) for text in texts]
    assert contents(git, blobs) == texts
    assert contents(git, []) == []


def test_a_blob_that_is_not_there_is_refused_by_name(stage):
    git, gone = Git(stage.root), "1" * 40
    there = Objects(git).store(b"there")
    with pytest.raises(Refusal, match=f"there is no object {gone}") as caught:
        contents(git, [there, gone])
    assert caught.value.status is Status.INFRASTRUCTURE


@pytest.mark.parametrize("path", ["/etc/passwd", "../kernel.py", "nothing.py"])
def test_a_commit_has_no_file_that_is_outside_of_the_repository(stage, path):
    assert Objects(Git(stage.root)).entry("HEAD", path) is None
