"""What has to be refused."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ratchet.values.status import Refusal, Status


@contextmanager
def refused(status: Status | tuple[Status, ...], match: str | None = None) -> Iterator[pytest.ExceptionInfo[Refusal]]:
    """What is inside raises a Refusal of this status, or one of these, whose message matches."""
    with pytest.raises(Refusal, match=match) as caught:
        yield caught
    assert caught.value.status in (status if isinstance(status, tuple) else (status,)), caught.value.message
