"""``ratchet setup``: the judge's own environment, made once for all workspaces. Standard library only.

``--jax VERSION`` makes one with another JAX beside it, for `ratchet upgrade-check`.
"""

from __future__ import annotations

import argparse

from ratchet.commands import environments
from ratchet.process.boot import bootstrap, home
from ratchet.values.status import Refusal, Status


def command(options: argparse.Namespace) -> int:
    """Make the environment unless it is there, and say where it is."""
    if options.jax:
        folder = environments.make(options.jax, python=options.python, lock=options.lock)
        print(f"the environment with jax {options.jax} is {folder}")
        return Status.PASS.exit_code
    if options.lock or options.python:
        raise Refusal(Status.USAGE, "--lock and --python are for the environment that --jax names")
    own = home.environment()
    if own is None:
        raise Refusal(Status.INFRASTRUCTURE, environments.PRIVATE)
    if not home.ready(own):
        own.parent.mkdir(parents=True, exist_ok=True)
        if code := bootstrap.main(own, home.LOCK):
            return code
        bootstrap.prewarm(own)
    print(f"the judge's environment is {own}")
    return Status.PASS.exit_code
