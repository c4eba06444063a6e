"""Edits modelled before they are advised: several at once, what is worth most first, until a budget is spent.

Then the values of the fastest are checked, so that an advice that is followed is kept. All of it stays for the next
call (``predictions.py``), which models only what is new.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ratchet.advise.advice import Advice
from ratchet.advise.advise import program
from ratchet.advise.prediction import Modelled, Outlook, Prediction
from ratchet.search.predictions import Kept
from ratchet.search.sweep import Lanes, Sweep
from ratchet.values.status import Refusal, Status

CHECKED = 3
"""The fastest, whose values are checked: those that a brief names."""
_MODELLING = 2 / 3
"""Of the budget, after which no version is begun that is only modelled."""

Known = Mapping[str, Prediction]


@dataclass(frozen=True, kw_only=True)
class Predictor:
    """Models the edits of one kernel file."""

    source: bytes
    """The file as it is."""
    sweep: Sweep
    kept: Kept
    find: Callable[[Known], Outlook]
    """All edits by what is known of versions of the file; the more is known, the more there may be."""
    say: Callable[[int, int, Advice | None, Prediction, float], None] = lambda *_: None
    """Called with each that is modelled: which of how many, its edit (None: the file as it is), and seconds."""

    def known(self) -> Outlook:
        """By what earlier calls modelled."""
        return self.find(self.kept.read())

    def run(self, budget_s: float, *, fresh: bool = False) -> Outlook:
        """Model what is not known, then check values; nothing new is begun after ``budget_s`` seconds.

        ``fresh``: nothing is known from before.

        Raises:
          Refusal: the status of the file as it is, where that cannot be modelled.
        """
        known = {} if fresh else self.kept.read()
        found = self.find(known)
        if not found.unreached and not _unchecked(found):
            return found
        with self.sweep.opened(self.sweep.lanes) as lanes:
            began = time.monotonic()
            found = self._modelled(lanes, known, found, began + _MODELLING * budget_s)
            return self._checked(lanes, known, found, began + budget_s)

    def _modelled(self, lanes: Lanes, known: dict[str, Prediction], found: Outlook, until: float) -> Outlook:
        while found.unreached and time.monotonic() < until:
            edits = [*(() if found.base else (None,)), *found.unreached]  # None: what everything is compared with
            versions = [one.rewrite.after if one else self.source for one in edits]
            for count, (number, verdict, seconds) in enumerate(lanes.verdicts(versions, until=until), 1):
                made = known[program(versions[number])] = Prediction.of(verdict)
                if edits[number] is None and made.score is None:
                    raise Refusal(made.status, f"the file as it is cannot be modelled: {made.reason}")
                self.kept.add({program(versions[number]): made})
                self.say(count, len(edits), edits[number], made, seconds)
            found = self.find(known)
        return found

    def _checked(self, lanes: Lanes, known: dict[str, Prediction], found: Outlook, until: float) -> Outlook:
        asked: set[str] = set()
        while time.monotonic() < until:
            todo = [one for one in _unchecked(found) if program(one.advice.rewrite.after) not in asked]
            if not todo:
                break
            asked |= {program(one.advice.rewrite.after) for one in todo}
            versions = [one.advice.rewrite.after for one in todo]
            for count, (number, verdict, seconds) in enumerate(lanes.verdicts(versions, values=True, until=until), 1):
                one = todo[number]
                made = known[program(versions[number])] = one.prediction.with_values(verdict)
                self.kept.add({program(versions[number]): made})
                self.say(count, len(todo), one.advice, made, seconds)
            found = self.find(known)
        return found


def _unchecked(found: Outlook) -> list[Modelled]:
    return [one for one in found.advice[:CHECKED] if one.prediction.status is Status.UNCHECKED]
