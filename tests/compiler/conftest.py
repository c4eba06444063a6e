"""The compiler child of the judge's tests, shared with them."""

from tests.judge.conftest import compiled, not_compiled, workers

__all__ = ["compiled", "not_compiled", "workers"]
