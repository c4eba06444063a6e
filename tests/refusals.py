"""What has to be refused."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ratchet.values.status import Refusal, Status


@contextmanager
def refused(status: Status, match: str | None = None) -> Iterator[None]:
    """What is inside raises a Refusal of this status whose message matches."""
    with pytest.raises(Refusal, match=match) as caught:
        yield
    assert caught.value.status is status


@contextmanager
def refused_as(*statuses: Status, match: str = "") -> Iterator[pytest.ExceptionInfo[Refusal]]:
    """The block has to raise a refusal with one of these statuses, whose message matches."""
    with pytest.raises(Refusal, match=match) as caught:
        yield caught
    assert caught.value.status in statuses, caught.value.message
