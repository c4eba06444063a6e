"""Warm processes that stay when a verdict has ended, for the next one, which need not wait until JAX is imported.

One waits at a socket in the judge's private folder, whose name says what it must share with whoever connects: a digest
of every source, the Python, and the limits, namespaces, cgroup and rights of the process; and the judge's seal. It goes
after some minutes without work (``RATCHET_STANDBY_MINUTES``, 10 unless it is set; 0: none stays) and after an hour at
most.

Only processes that the kernel lets gain privileges are heard: a jailed child gave that up for good, and it is refused
the system calls that reach a socket besides. Standard library only.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import socket
import struct
import time
from pathlib import Path

from ratchet.process.boot import sources
from ratchet.process.boot.home import private_folder

MINUTES, DEFAULT_MINUTES = "RATCHET_STANDBY_MINUTES", 10.0
"""The variable that says how long one waits for work, and what it says where it is not set."""
LIFE_SECONDS = 3600.0
"""How long one takes new work: forks of one process have their libraries at the same addresses."""
MOST = 2
"""Processes of each kind that wait at a time; the ones that came first go."""
LEAVE = b"leave"
"""The message to one that is to go."""
READY = b"ready"
"""The message of one that forks."""
ANSWER_SECONDS = 2.0

_CREDENTIALS = struct.Struct("3i")
_RIGHTS = ("Umask:", "CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:", "NoNewPrivs:", "Seccomp:", "Cpus_allowed:")
"""Lines of ``/proc/self/status`` that children inherit."""
_UNCONFINED = "NoNewPrivs:\t0"


def idle_seconds() -> float:
    """How long one waits for work; 0 where none is to stay, and where the variable is no number."""
    try:
        return max(0.0, 60 * float(os.environ.get(MINUTES, DEFAULT_MINUTES)))
    except ValueError:
        return 0.0


def socket_path(kind: str, shared: str, seal: str) -> Path | None:
    """The socket of processes of a kind that share ``shared``, this process's circumstances and the seal.

    None where none may stay: there is no private folder, no Linux, this process itself is confined, or it is one of a
    user's that has the judge as a library.
    """
    private = private_folder()
    if private is None or not idle_seconds() or not sources.are_served():
        return None
    try:
        circumstances = _circumstances()
        (private / "standby").mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return None
    if _UNCONFINED not in circumstances:
        return None
    digest = hashlib.sha256(repr((shared, circumstances)).encode()).hexdigest()[:16]
    return private / "standby" / f"{kind}-{digest}-{seal}.sock"


def seals(kind: str, shared: str) -> list[str]:
    """The seals of processes that wait and are as in ``socket_path``, the one that came last first."""
    any_seal = socket_path(kind, shared, "*")
    with contextlib.suppress(OSError):
        found = any_seal.parent.glob(any_seal.name) if any_seal else ()
        by_age = sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)
        return [path.stem.rpartition("-")[2] for path in by_age]
    return []


def connected(path: Path) -> socket.socket | None:
    """A connection to the process that waits there, and forks; None where there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with contextlib.suppress(OSError):
        connection.settimeout(ANSWER_SECONDS)
        connection.connect(os.fspath(path))
        if _peer(connection)[1] == os.getuid() and connection.recv(len(READY)) == READY:
            connection.settimeout(None)
            return connection
    connection.close()
    return None


def _circumstances() -> list[str]:
    """What a process passes on to those that it starts, beside variables and descriptors."""
    own = Path("/proc/self")
    status = [line for line in (own / "status").read_text().splitlines() if line.startswith(_RIGHTS)]
    spaces = [os.readlink(own / "ns" / name) for name in sorted(os.listdir(own / "ns"))]
    limits = [(name, resource.getrlimit(getattr(resource, name))) for name in dir(resource) if name[:7] == "RLIMIT_"]
    identity = [os.getresuid(), os.getresgid(), sorted(os.getgroups()), os.getpriority(os.PRIO_PROCESS, 0)]
    return [*status, *spaces, repr(limits), repr(identity), os.readlink(own / "root"), (own / "cgroup").read_text()]


def _peer(connection: socket.socket) -> tuple[int, int]:
    """Process and user at the other end."""
    given = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(given)
    return process, user


class Listener:
    """Where a warm process waits, ``idle_seconds`` from its last work on.

    Raises:
      OSError: another one waits there, or the path is too long for a socket.
    """

    def __init__(self, path: Path, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds
        self._closes = time.monotonic() + LIFE_SECONDS
        self._path = path
        if (other := connected(path)) is not None:
            other.close()
            raise FileExistsError(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        unheard = path.with_suffix(".new")  # who finds the path is heard
        unheard.unlink(missing_ok=True)
        self.socket.bind(os.fspath(unheard))
        self.socket.listen()
        self._inode = unheard.stat().st_ino
        unheard.rename(path)
        self._send_others_away()

    def accept(self) -> socket.socket | None:
        """The next that connected; None for one who may not, and where it went again."""
        try:
            connection, _ = self.socket.accept()
        except OSError:
            return None
        with contextlib.suppress(OSError):
            process, user = _peer(connection)
            status = Path(f"/proc/{process}/status").read_text()
            if user == os.getuid() and _UNCONFINED in status.splitlines():
                connection.send(READY)
                return connection
        connection.close()
        return None

    def seconds_left(self, idle_since: float | None) -> float:
        """How long it stays open from now on; ``idle_since``: on the monotonic clock, None while there is work."""
        ends = self._closes if idle_since is None else min(self._closes, idle_since + self._idle_seconds)
        return max(0.0, ends - time.monotonic())

    def close(self) -> None:
        """Nobody connects any more."""
        self.socket.close()
        with contextlib.suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()

    def _send_others_away(self) -> None:
        """Of this kind, those beyond the last few; and files that nobody listens at."""
        kind = self._path.name.partition("-")[0]
        with contextlib.suppress(OSError):
            by_age = sorted(self._path.parent.glob(f"{kind}-*.sock"), key=lambda path: path.stat().st_mtime)
            for path in (old for old in by_age[:-MOST] if old != self._path):
                other = connected(path)
                if other is None:
                    path.unlink(missing_ok=True)
                else:
                    with other:
                        other.send(LEAVE)
