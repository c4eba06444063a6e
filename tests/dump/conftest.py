"""Programs of the real compiler, from the judge's tests."""

from tests.judge.conftest import compiled, workers

__all__ = ["compiled", "workers"]
