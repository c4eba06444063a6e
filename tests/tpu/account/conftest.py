"""Golden dumps are modelled here with the constants that their cycles are pinned with."""

from tests.tpu.machine.conftest import pinned_constants

__all__ = ["pinned_constants"]
