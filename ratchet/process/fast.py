"""The judge's speed tricks: each has a name here and a switch, and a verdict is the same to the digit without them.

Whatever they hasten reads on its own: who skips them misses nothing that decides a verdict. The values' executor has
a switch for each translation, ``Options.fast`` of ``tpu/mosaic/state.py``, as it runs in a process of its own.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Fast:
    """Which tricks are used."""

    forks: bool = True
    """Children are forks of a process that has imported JAX (``sandbox/warm.py``); else each imports it."""
    standby: bool = True
    """That process waits for the next verdict (``sandbox/standby.py``), and traces its file while the judge looks at
    its own files and the history (``RepositoryJudge.tracing``)."""
    allocator: bool = True
    """The judge's own children have jemalloc, where it is installed (``sandbox/warm.py``)."""
    profiles: bool = True
    """A large program's bundles are read from a profile, by two compilers at once (``tpu/compiler/fast``)."""


PLAIN = Fast(forks=False, standby=False, allocator=False, profiles=False)
ON = Fast()
"""The switch."""
