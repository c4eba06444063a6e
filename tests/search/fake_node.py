"""A node's judge that computes what constants are worth."""

from __future__ import annotations

import io
import os
import sys
import tempfile
import time
from pathlib import Path

from ratchet.commands.node import serve
from ratchet.exam.judge.request import Request
from ratchet.search.protocol import Device, DeviceRequest, JudgeRequest, Unfit, is_measured
from ratchet.values import Verdict
from tests.loop.stage import CONDITIONS
from tests.search import fakes

TIMES_FASTER = float(os.environ.get("FAKE_NODE_TIMES_FASTER", "1"))
"""A node that lies says so of what it measures."""
SECONDS = float(os.environ.get("FAKE_NODE_SECONDS", "0"))


def judge(asked: JudgeRequest | DeviceRequest, seal: str = CONDITIONS.seal) -> Verdict | Device | Unfit:
    if isinstance(asked, DeviceRequest) or is_measured(asked):
        return fakes.answer(asked, times_faster=TIMES_FASTER)
    if asked.conditions.seal != seal:
        return Unfit(why=f"its judge is {seal}, wanted {asked.conditions.seal}")
    time.sleep(SECONDS)
    with tempfile.TemporaryDirectory() as folder:
        kernel = Path(folder, "kernel.py")
        kernel.write_bytes(asked.text)
        return fakes.function(
            Request(
                kernel=kernel,
                root=Path(folder),
                kernel_rel=asked.kernel,
                conditions=asked.conditions,
                model_only=asked.model_only,
            )
        )


def ask(line: bytes, seal: str = CONDITIONS.seal) -> bytes:
    """What a node says to one question."""
    out = io.BytesIO()
    serve(io.BytesIO(line), out, lambda asked: judge(asked, seal))
    return out.getvalue()


def main() -> None:
    serve(sys.stdin.buffer, sys.stdout.buffer, judge)
