"""``ratchet setup``: the judge's own environment, made once for all workspaces. Standard library only."""

from __future__ import annotations

import argparse

from ratchet import bootstrap, home
from ratchet.values.status import Refusal, Status


def command(options: argparse.Namespace) -> int:
    """Make the environment unless it is there, and say where it is."""
    folder = home.environment()
    if folder is None:
        message = "there is no folder of this user's alone for it: `chmod 700` ~/.cache/pallas-ratchet, or make it"
        raise Refusal(Status.INFRASTRUCTURE, message)
    if not home.ready(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        if code := bootstrap.main(folder, home.LOCK):
            return code
    print(f"the judge's environment is {folder}")
    return Status.PASS.exit_code
