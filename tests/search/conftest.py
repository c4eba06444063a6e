from tests.loop.conftest import _own_git_settings, _own_key, _without_flushing  # noqa: F401  # the same surroundings
