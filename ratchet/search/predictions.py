"""Predictions that are kept from one call to the next, in ``.ratchet/predictions``: one file for a kernel's conditions.

Under the same conditions a version of a kernel file is modelled once. What is kept is what judging again would repeat,
and limits that were reached (``--fresh`` tries those again), by a digest of the version's syntax tree, with a MAC of
this machine's key, as verdicts are: what comes from elsewhere is no prediction. Nothing is decided by them; an
experiment is judged anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ratchet.advise.prediction import Prediction
from ratchet.exam.judge.secret import FOLDER, clone_folder
from ratchet.loop.decide import speaks_of_the_kernel
from ratchet.process import key
from ratchet.process.root import Root
from ratchet.values import Conditions
from ratchet.values.encoding import decode, encode

MOST = 4000
"""Predictions of one kernel under the same conditions; the oldest go."""
MOST_FILES = 64
_PLACE = f"{FOLDER}/predictions"
_MOST_BYTES = 64 << 20
_PURPOSE = "predictions"
_LOCK = f"{FOLDER}/predictions.lock"
_WAIT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The predictions of one kernel file under the same conditions."""

    root: Path
    kernel: str
    conditions: Conditions

    @property
    def _name(self) -> str:
        text = json.dumps([self.kernel, encode(self.conditions)])
        return f"{_PLACE}/{hashlib.sha256(text.encode()).hexdigest()[:32]}"

    def read(self) -> dict[str, Prediction]:
        """By ``advise.program`` of the version's bytes, oldest first; none where what is there is not from here."""
        own = key.known()
        try:
            mac, _, data = Root(self.root).read(self._name, _MOST_BYTES).partition(b"\n")
            if own is None or not own.made(mac.decode(errors="replace"), _PURPOSE, self._name.encode(), data):
                return {}
            return decode(dict[str, Prediction], json.loads(zlib.decompress(data)))
        except (OSError, ValueError, TypeError, zlib.error):  # none yet, or of another version of these values
            return {}

    def add(self, new: Mapping[str, Prediction]) -> None:
        """Keep those that speak of the kernel, too. What cannot be written is not kept."""
        own = key.known()
        good = {name: one for name, one in new.items() if speaks_of_the_kernel(one.status)}
        if own is None or not good:
            return
        with contextlib.suppress(OSError):
            clone_folder(self.root)
            top = Root(self.root)
            top.make_folder(_PLACE)
            with top.locked(_LOCK, wait_s=_WAIT_S):  # another call may add to them at the same time
                known = {name: one for name, one in self.read().items() if name not in good} | good
                every = [(name, encode(one)) for name, one in known.items()]
                data = zlib.compress(json.dumps(dict(every[-MOST:])).encode(), 1)
                mac = own.mac(_PURPOSE, self._name.encode(), data)
                top.write(self._name, mac.encode() + b"\n" + data, flush=False)
                _prune(top)


def _prune(top: Root) -> None:
    states = [(state.st_mtime, name) for name in top.names(_PLACE) if (state := top.state(f"{_PLACE}/{name}"))]
    for _, name in sorted(states)[:-MOST_FILES]:
        top.unlink(f"{_PLACE}/{name}")
