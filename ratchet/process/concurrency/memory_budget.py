"""Work side by side as far as memory is enough for it; what does not fit beside the others waits its turn."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Turns:
    """Shares out ``size`` bytes. Who needs more than that has a turn alone."""

    def __init__(self, size: int) -> None:
        self._size, self._used = size, 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def taken(self, needed: int) -> Iterator[None]:
        """Around work that needs so many bytes."""
        with self._changed:
            self._changed.wait_for(lambda: not self._used or self._used + needed <= self._size)
            self._used += needed
        try:
            yield
        finally:
            with self._changed:
                self._used -= needed
                self._changed.notify_all()
