"""The jailed child that reads damaged artefacts as the judge's children do: StableHLO and Mosaic, by native code."""

from __future__ import annotations

from pathlib import Path

from ratchet.process.sandbox.child import serve
from ratchet.tpu.compiler.tokens import tokenise
from ratchet.tpu.mosaic.run import Options, load, translated
from ratchet.values.status import Refusal

PROGRAM, ANSWER = "kernel.bin", "answer.txt"


def answer(data: bytes) -> str:
    """What comes of one artefact: ``read``, ``refused``, or what was raised."""
    try:
        load(data)
        translated(tokenise(data)[0], Options())
    except Refusal:
        return "refused"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "read"


def handle(request: Path) -> str:
    """Answer for the artefact of a request."""
    (request / ANSWER).write_text(answer((request / PROGRAM).read_bytes()))
    return ANSWER


if __name__ == "__main__":
    serve(handle)
