"""The environments with another JAX, by its version: those of ``setup --jax``. Standard library only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ratchet.process.boot import home
from ratchet.values.status import Refusal, Status

LOCK = "environment.lock"
"""In an environment: the lock that it was made from."""
OTHER = ("protobuf", "flatbuffers", "gitpython", "numpy", "pandas", "rich")
"""What the judge's modules import besides JAX and what comes with it."""
WITH_LIBTPU = ("requests",)
"""What JAX's extra ``tpu`` installs besides libtpu."""
_VERSION = re.compile(r"([0-9]+(?:\.[0-9]+)*)(?:\+libtpu([0-9]+(?:\.[0-9]+)*))?")
PRIVATE = "there is no folder of this user's alone for it: `chmod 700` pallas-ratchet in the cache folder, or make it"


@dataclass(frozen=True, kw_only=True)
class Version:
    """A version of JAX, and of libtpu where it is not the one that JAX was released with."""

    jax: str
    libtpu: str = ""

    def __str__(self) -> str:
        return f"{self.jax}+libtpu{self.libtpu}" if self.libtpu else self.jax

    @property
    def requirements(self) -> tuple[str, ...]:
        """What pip is asked for."""
        if self.libtpu:
            return (f"jax=={self.jax}", f"libtpu=={self.libtpu}", *WITH_LIBTPU, *OTHER)
        return (f"jax[tpu]=={self.jax}", *OTHER)


def parse(text: str) -> Version:
    """``0.12.0.1`` or ``0.12.0.1+libtpu0.0.52``. Raises Refusal ``USAGE``."""
    match = _VERSION.fullmatch(text)
    if match is None:
        wanted = "wanted one such as 0.10.2, or 0.12.0.1+libtpu0.0.52"
        raise Refusal(Status.USAGE, f"{text!r:.40} is no version of JAX: {wanted}")
    return Version(jax=match[1], libtpu=match[2] or "")


def environment_of(text: str) -> Path:
    """The environment of a version of JAX: the judge's own where it has that one.

    Raises:
      Refusal: ``USAGE`` for what is no version, ``NOT_FOUND`` where it was not made.
    """
    version = parse(text)
    own, other = home.environment(), folder_of(version)
    if own is not None and all(
        any(own.glob(f"lib/python*/site-packages/{name}-{number}.dist-info"))
        for name, number in (("jax", version.jax), ("libtpu", version.libtpu or "*"))
    ):
        return own
    if not (other / LOCK).is_file():
        message = f"there is no environment with jax {version}: `{home.PROGRAM} setup --jax {version}` makes it"
        raise Refusal(Status.NOT_FOUND, message)
    return other


def folder_of(version: Version) -> Path:
    """Where the environment of a version is, made or not. Raises ``INFRASTRUCTURE`` without a private folder."""
    folder = home.environment_of_jax(str(version))
    if folder is None:
        raise Refusal(Status.INFRASTRUCTURE, PRIVATE)
    return folder
