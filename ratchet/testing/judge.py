"""The judge's own environment beside the tests: it compiles, models and executes what this Python's JAX exported.

So the tests need their own JAX, of any version since 0.7, and nothing else of the judge's. Arrays go there and back as
files of a folder that is removed with the process.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ratchet
from ratchet.process.boot import home
from ratchet.values.status import Refusal, Status

ENTRY = "programs"
"""What is started there (``ratchet/testing/programs.py``)."""
_SERIALISER = "flatbuffers"
"""What JAX writes programs with, plain Python; it comes without it."""
_LIBRARY = "library"


@dataclass(frozen=True, kw_only=True)
class Judge:
    """The process, and what it said of itself."""

    process: subprocess.Popen[str]
    folder: Path
    stablehlo: str
    """The newest StableHLO that it reads."""

    @classmethod
    def start(cls) -> Judge:
        """Start it in the judge's environment, or in this Python where that has all of the library.

        Raises:
          Refusal: ``NOT_FOUND`` where there is neither, ``INFRASTRUCTURE`` where it does not start.
        """
        command, variables = _command()
        folder = Path(tempfile.mkdtemp(prefix="ratchet-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        with (folder / "said").open("w") as said:
            process = subprocess.Popen(
                command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True
            )
        atexit.register(_end, process)
        first = _answer(process, folder)
        return cls(process=process, folder=folder, stablehlo=str(first["stablehlo"]))

    def ask(
        self, question: Mapping[str, Any], program: bytes, leaves: Sequence[Any]
    ) -> tuple[dict[str, Any], list[Any]]:
        """Its answer to a question about a program, and the arrays that came with it.

        Args:
          question: what is to be done, as JSON has it.
          program: of ``exported``.
          leaves: its inputs: arrays, or what has only their shape and dtype.

        Raises:
          Refusal: what it refuses; ``INFRASTRUCTURE`` where it ended.
        """
        with tempfile.TemporaryDirectory(dir=self.folder) as given:
            Path(given, "program").write_bytes(program)
            described = [write(Path(given, f"input{number}"), leaf) for number, leaf in enumerate(leaves)]
            line = json.dumps({**question, "folder": given, "inputs": described})
            try:
                assert self.process.stdin is not None
                self.process.stdin.write(line + "\n")
                self.process.stdin.flush()
            except OSError:
                pass  # it ended, which reading says
            answer = _answer(self.process, self.folder)
            outputs = [read(Path(given, f"output{n}"), one) for n, one in enumerate(answer.get("outputs", []))]
            return answer, outputs


def exported(function: Callable[..., Any], arrays: Sequence[Any], chip: str, stablehlo: str) -> tuple[bytes, list[Any]]:
    """A function exported for a TPU by this Python's JAX, in no newer StableHLO; and the leaves of ``arrays``.

    Raises:
      Refusal: what was raised while tracing and lowering, its cause kept; ``NOT_FOUND`` without JAX.
    """
    try:
        import jax
    except ModuleNotFoundError as error:
        if error.name != "jax":
            raise
        todo = f"install the JAX of your kernels, or 'pallas-ratchet[{_LIBRARY}]'"
        raise Refusal(Status.NOT_FOUND, f"jax is not in this Python ({sys.executable}): {todo}") from None
    with _serialiser():
        from ratchet.tpu import exporting
        from ratchet.tpu.chips import CHIPS
        from ratchet.values import Mesh

        program = exporting.serialised(function, arrays, Mesh(), CHIPS[chip], newest=stablehlo)
        return program, jax.tree.leaves(tuple(arrays))


def write(path: Path, leaf: Any) -> dict[str, Any]:
    """What an array is; its bytes, where it has values, go to a file."""
    import numpy as np

    known = {"shape": list(leaf.shape), "dtype": leaf.dtype.name} if hasattr(leaf, "dtype") else {}
    if hasattr(leaf, "shape") and not hasattr(leaf, "__array__"):
        return {**known, "values": False}
    values = np.asarray(leaf)
    path.write_bytes(values.tobytes())
    return {"shape": list(values.shape), "dtype": values.dtype.name, "values": True}


def read(path: Path, described: Mapping[str, Any]) -> Any:
    """An array of ``write``; its shape and dtype alone where it had no values."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    shape, dtype = tuple(described["shape"]), jnp.dtype(described["dtype"])
    if not described["values"]:
        return jax.ShapeDtypeStruct(shape, dtype)
    return np.frombuffer(path.read_bytes(), dtype).reshape(shape)


def _command() -> tuple[list[str], dict[str, str]]:
    """What starts the process, and its variables."""
    folder = home.environment()
    if folder is not None and home.ready(folder):
        python = os.path.realpath(folder / "bin" / "python")
        return [python, "-I", "-S", str(home.START), ENTRY], home.judges_environment(os.environ, folder)
    if ratchet.missing():
        todo = f"`{home.PROGRAM} setup` makes it, once for all repositories"
        raise Refusal(Status.NOT_FOUND, f"the judge has no environment to compile in yet: {todo}")
    code = f"import sys; sys.path[:0] = [{str(home.PACKAGE_ROOT)!r}]; "
    code += "from ratchet.testing.programs import main; sys.exit(main())"
    return [sys.executable, "-P", "-c", code], dict(os.environ)


def _answer(process: subprocess.Popen[str], folder: Path) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.endswith("\n"):
        _end(process)
        last = (folder / "said").read_text(errors="replace").strip().splitlines()[-1:]
        why = f"it ended with exit code {process.returncode}{': ' if last else ''}{''.join(last):.300}"
        raise Refusal(Status.INFRASTRUCTURE, f"the process that compiles and executes is gone: {why}")
    answer: dict[str, Any] = json.loads(line)
    if "refused" in answer:
        raise Refusal(Status[answer["refused"]], str(answer["message"]))
    return answer


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _serialiser() -> Iterator[None]:
    """While the block runs, this Python has JAX's serialiser: its own, or that of the judge's environment."""
    folder = home.environment()
    spare = [str(one.parent) for one in folder.glob(f"lib/python*/site-packages/{_SERIALISER}")] if folder else []
    sys.path.extend(spare)
    try:
        import flatbuffers.compat  # noqa: F401 - from here on JAX finds it
    except ModuleNotFoundError:
        todo = f"`{home.PROGRAM} setup`, or pip install {_SERIALISER}"
        raise Refusal(Status.NOT_FOUND, f"{_SERIALISER}, which JAX writes programs with, is nowhere: {todo}") from None
    finally:
        for one in spare:
            sys.path.remove(one)
    yield
