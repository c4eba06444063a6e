"""The surroundings of tests that need a real repository are those of the loop."""

from tests.loop.conftest import _own_git_settings, _own_key, _without_flushing, template  # noqa: F401
