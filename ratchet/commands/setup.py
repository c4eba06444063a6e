"""``ratchet setup``: the judge's own environment, made once for all workspaces. Standard library only.

``--jax VERSION`` makes one with another JAX beside it, for `ratchet upgrade-check`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from pathlib import Path

from ratchet import bootstrap, home
from ratchet.values.status import Refusal, Status

LOCK = "environment.lock"
"""In an environment of another JAX: its packages, each with its version. Written last."""
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*")
_PRIVATE = "there is no folder of this user's alone for it: `chmod 700` ~/.cache/pallas-ratchet, or make it"


def command(options: argparse.Namespace) -> int:
    """Make the environment unless it is there, and say where it is."""
    if options.jax:
        return _other(options.jax, options.python)
    folder = home.environment()
    if folder is None:
        raise Refusal(Status.INFRASTRUCTURE, _PRIVATE)
    if not home.ready(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        if code := bootstrap.main(folder, home.LOCK):
            return code
    print(f"the judge's environment is {folder}")
    return Status.PASS.exit_code


def environment_of(version: str) -> Path:
    """The environment of a version of JAX: the judge's own where it has that one.

    Raises:
      Refusal: ``USAGE`` for what is no version, ``NOT_FOUND`` where it was not made.
    """
    own, other = home.environment(), _folder(version)
    if own is not None and any(own.glob(f"lib/python*/site-packages/jax-{version}.dist-info")):
        return own
    if not (other / LOCK).is_file():
        message = f"there is no environment with jax {version}: `{home.PROGRAM} setup --jax {version}` makes it"
        raise Refusal(Status.NOT_FOUND, message)
    return other


def _folder(version: str) -> Path:
    if not _VERSION.fullmatch(version):
        raise Refusal(Status.USAGE, f"{version!r:.40} is no version of JAX: wanted one such as 0.10.2")
    folder = home.environment_of_jax(version)
    if folder is None:
        raise Refusal(Status.INFRASTRUCTURE, _PRIVATE)
    return folder


def _other(version: str, python: str) -> int:
    folder = _folder(version)
    if not (folder / LOCK).is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            bootstrap.make_other(folder, version, python, LOCK)
        except (subprocess.CalledProcessError, OSError) as error:
            message = f"no environment with jax {version} could be made ({error}): its packages may need another Python"
            raise Refusal(Status.INFRASTRUCTURE, f"{message}, which --python names") from None
    print(f"the environment with jax {version} is {folder}")
    return Status.PASS.exit_code
