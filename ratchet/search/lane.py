"""One lane of a node: a process of Ray's that keeps a judge of the node's own beside it, and hands it what is asked.

It is pickled as it is, so that a node needs nothing of the driver's. Standard library only.
"""

from __future__ import annotations

import json
import os
import subprocess


class Lane:
    """The judge is started once, and again where it ended. It speaks one line of JSON for each that it reads."""

    def __init__(self, command: list[str] | None = None) -> None:
        self._command = command or json.loads(os.environ["RATCHET_NODE"])
        self._judge: subprocess.Popen[bytes] | None = None

    def ask(self, question: bytes) -> bytes:
        """The judge's answer.

        Raises:
          RuntimeError: it ended without one.
        """
        if self._judge is None or self._judge.poll() is not None:
            self._judge = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._judge.stdin is not None
        assert self._judge.stdout is not None
        try:
            self._judge.stdin.write(question)
            self._judge.stdin.flush()
            line = self._judge.stdout.readline()
        except OSError:
            line = b""
        if not line.endswith(b"\n"):
            self._judge.kill()
            raise RuntimeError(f"the judge of this node ended with exit code {self._judge.wait()}")
        return line
