"""The first file of the judge's that runs: ``python -I -S ratchet/process/boot/start.py ratchet|prepare ARGUMENTS``.

``under ENVIRONMENT ARGUMENTS`` is ``ratchet`` with the packages of that environment, another JAX's, ``upgrade
ENVIRONMENT FOLDER`` one side of a comparison of two, ``programs`` what tests of kernels ask, and ``prewarm`` prepares
a new environment for its first verdict.

Python has then looked at no variable, no ``.pth`` file, no ``sitecustomize`` and no folder of the caller's. This file
reads every source of the judge's once, and from then on only those are modules of the judge's. Packages come from
the private environment alone; their compiled code is kept in the judge's private folder. Standard library only.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[3]
ENTRIES = {
    "ratchet": "ratchet.__main__:run",
    "prepare": "ratchet.__main__:run_prepare",
    "under": "ratchet.__main__:run",
    "upgrade": "ratchet.upgrade.side:main",
    "programs": "ratchet.testing.programs:main",
    "prewarm": "ratchet.process.boot.installed:prewarm",
}
"""What can be run, by its first argument: modules above this one, so none is imported before the server is there."""
_NO_ENVIRONMENT = 69


def _early(name: str) -> ModuleType:
    """A module of the judge's before there is a server for them: compiled here, from its source."""
    path = Path(__file__).with_name(f"{name}.py").resolve()
    module = ModuleType(f"ratchet.process.boot.{name}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), module.__dict__)
    return module


def _packages(environment: Path) -> str:
    """The private environment's folder of packages; makes the environment what ``site`` would make of it.

    The interpreter was started under its own name, so that it looked at nothing in it.
    """
    sys.prefix = sys.exec_prefix = str(environment)
    import sysconfig  # takes the prefix as it is imported

    return str(Path(sysconfig.get_path("purelib")).resolve())


def _encode() -> None:
    """Print in the encoding that ``PYTHONIOENCODING`` names: an isolated Python does not look at it."""
    encoding, _, errors = os.environ.get("PYTHONIOENCODING", "").partition(":")
    with contextlib.suppress(LookupError):
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # closed by the caller
                stream.reconfigure(encoding=encoding or None, errors=errors or None)  # type: ignore[union-attr]


def main() -> int:
    """Serve the judge's modules and run what the command line names; returns its exit code."""
    if not (sys.flags.isolated and sys.flags.no_site) or sys.argv[1:2] not in ([name] for name in ENTRIES):
        sys.exit(f"start it as `python -I -S {Path(__file__).name} {'|'.join(ENTRIES)}`")
    _encode()
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    home, sources, bytecode = map(_early, ("home", "sources", "bytecode"))
    sources.Server(sources.loaded(ROOT).compiled()).install()
    entry = sys.argv.pop(1)
    environment = Path(sys.argv.pop(1)) if entry in ("under", "upgrade") else home.environment() or ROOT
    packages = _packages(environment)
    sys.pycache_prefix = next(iter(bytecode.folders()), None)
    sys.path.append(packages)
    if not Path(sys.path[-1], "ml_dtypes").is_dir():
        makes = "ratchet setup" if home.INSTALLED else "./ratchet.sh --help"
        print(f"there is no private environment in {environment} yet: `{makes}` makes it", file=sys.stderr)
        return _NO_ENVIRONMENT
    signal.signal(signal.SIGINT, before)
    # What a child left is read by Python's own code, not by protobuf's parser in C.
    os.environ["PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"] = "python"
    # The threads of NumPy's BLAS, which nothing here needs, spin for a tenth of a second once they are started.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    from ratchet.process.boot import children

    gc.set_threshold(children.OBJECTS)
    module, function = ENTRIES[entry].split(":")
    return int(getattr(importlib.import_module(module), function)())


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """While the block runs, Ctrl-C ends the process at once, with one line: nothing has begun that has to be undone.

    A KeyboardInterrupt in the middle of an import would be a traceback, or any other error where C code turns it into
    one. An interrupt that is ignored stays ignored. Only the main thread is interrupted; in another nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    from ratchet.values.status import Status

    def end(*_: object) -> None:
        os.write(2, f"{Status.INTERRUPTED.name}: {Status.INTERRUPTED.meaning}\n".encode())
        os._exit(Status.INTERRUPTED.exit_code)

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def leave(code: int) -> None:
    """End the process with all that waits for its end done and all that it printed written.

    Python would take its modules apart first: a tenth of a second of every command, for nobody. Where a thread is still
    at work or something cannot be written, that is what happens all the same.
    """
    if threading.active_count() > 1:
        return
    with contextlib.suppress(OSError, ValueError):  # it is said as ever
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        atexit._run_exitfuncs()
        os._exit(code)


if __name__ == "__main__":
    ended = main()
    leave(ended)
    sys.exit(ended)
