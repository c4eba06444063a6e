"""The module of a child that attacks: it calls the function that its request names, and says what came of it."""

import ctypes
import os
import signal
import socket
import threading
import time
from pathlib import Path

from ratchet.process.sandbox.child import serve

LIBC = ctypes.CDLL(None, use_errno=True)


def survive(note: Path) -> str:
    """A grandchild in a session of its own, which goes on after everybody is dead."""
    if os.fork():
        return "forked"
    os.setsid()
    if os.fork():
        os._exit(0)
    for stream in range(3):
        os.close(stream)
    while True:
        note.write_text(str(time.time()))
        time.sleep(0.02)


def read(path: Path) -> str:
    return path.read_text()


def names(folder: Path) -> str:
    return " ".join(os.listdir(folder))


def leads(link: Path) -> str:
    return os.readlink(link)


def own(_: Path) -> str:
    """What it may know of itself."""
    here = Path("/proc/self")
    return f"{(here / 'comm').read_text()} {len((here / 'maps').read_text())} {len(os.listdir(here / 'fd'))}"


def write(path: Path) -> str:
    path.write_text("forged")
    return "wrote"


def read_on_every_thread(path: Path) -> str:
    """Threads that exist when the file is asked for, and one that is made for it."""
    got = []

    def attack(*_: object) -> None:
        try:
            got.append(path.read_text())
        except OSError as error:
            got.append(type(error).__name__)

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(attack)
    LIBC.signal(signal.SIGUSR1, handler)
    others = [int(one) for one in os.listdir("/proc/self/task") if int(one) != threading.get_native_id()]
    for thread in others:
        LIBC.syscall(234, os.getpid(), thread, signal.SIGUSR1)  # tgkill
    made = threading.Thread(target=attack)
    made.start()
    made.join()
    deadline = time.monotonic() + 10
    while len(got) <= len(others) and time.monotonic() < deadline:
        time.sleep(0.01)
    return f"{len(others)} {sorted(set(got))}"


def listen(_: Path) -> str:
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    server.bind(("127.0.0.1", 0))
    server.listen()
    return f"listens on {server.getsockname()[1]}"


def connect(port: Path) -> str:
    socket.create_connection(("127.0.0.1", int(port.name)), timeout=5)
    return "connected"


def kill(process: Path) -> str:
    os.kill(int(process.name), signal.SIGKILL)
    return "killed"


def processes(_: Path) -> str:
    return " ".join(sorted((name for name in os.listdir("/proc") if name.isdigit()), key=int))


def fifo(path: Path) -> str:
    os.mkfifo(path)
    return "made"


def link(path: Path) -> str:
    path.symlink_to("/etc/passwd")
    return "made"


def litter(folder: Path) -> str:
    for number in range(100_000):
        (folder / f"{number}").touch()
    return "littered"


def fill(path: Path) -> str:
    with path.open("wb") as file:
        for _ in range(1 << 10):
            file.write(bytes(1 << 20))
    return "filled"


def eat(_: Path) -> str:
    """Memory that is used for longer than the judge takes to look, and no more of it than a test may take."""
    held = bytearray(768 << 20)
    held[::4096] = b"x" * len(held[::4096])
    time.sleep(600)
    return f"ate {len(held)}"


def sleep(_: Path) -> str:
    time.sleep(600)
    return "slept"


def become(_: Path) -> str:
    os.execv("/bin/sh", ["sh", "-c", "echo became"])
    return ""


def mount(folder: Path) -> str:
    if LIBC.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, None):
        raise PermissionError(ctypes.get_errno(), "mount")
    return "mounted"


def trace(process: Path) -> str:
    if LIBC.ptrace(16, int(process.name), 0, 0):  # PTRACE_ATTACH
        raise PermissionError(ctypes.get_errno(), "ptrace")
    return "traced"


def leave(how: Path) -> str:
    """End with a code, a text, an exception or a signal."""
    word, _, value = how.name.partition("-")
    if word == "raise":
        raise ValueError("what nobody catches")
    if word == "signal":
        os.kill(os.getpid(), int(value))
    raise SystemExit(int(value) if word == "code" else value or None)


def say(much: Path) -> str:
    """So many letters on standard output, and an answer of as many."""
    print("p" * int(much.name) + "end")
    return "a" * int(much.name)


def variables(_: Path) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(os.environ.items()))


def spaces(_: Path) -> str:
    return " ".join(os.readlink(f"/proc/self/ns/{name}") for name in sorted(os.listdir("/proc/self/ns")))


def descriptors(_: Path) -> str:
    """What is open, by kind: ``pipe``, ``socket``, or a path."""
    links = []
    for number in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            links.append(os.readlink(f"/proc/self/fd/{number}").partition(":")[0])
        except OSError:  # that of the folder that is listed
            continue
    return " ".join(links)


def handle(request: Path) -> str:
    name, _, argument = request.name.partition(" ")
    try:
        return globals()[name](Path(argument.replace("|", "/")))
    except OSError as error:
        return f"{type(error).__name__}: {error.strerror}"


if __name__ == "__main__":
    os.environ["OPENBLAS_NUM_THREADS"] = "2"  # the judge says 1, but a library may start threads all the same
    import numpy as np

    np.ones((512, 512)) @ np.ones((512, 512))  # its threads are there before anything is asked
    serve(handle)
