"""From rows, evidence and HEAD's kernel to a brief. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

from ratchet.loop.series import series_of
from ratchet.values import Decision, Row, Timeline
from ratchet.values.brief import Brief, Suggestion, Task
from ratchet.values.loss import Key, Refuted

RECENT = 8
"""Of so many experiments that were reverted last, most changed the same part: that is repetition."""
MOST_OF_RECENT = 5


def brief(  # noqa: PLR0913 - one value from everything that is known
    *,
    task: Task,
    source: bytes,
    incumbent: Row | None,
    timeline: Timeline | None,
    refuted: Mapping[Key, Refuted],
    rows: Sequence[Row],
    parts: Sequence[frozenset[str]],
    suggestions: Sequence[Suggestion] = (),
    no_faster: int = 0,
    not_modelled: int = 0,
) -> Brief:
    """The brief of one kernel.

    Args:
      task: what it computes.
      source: HEAD's kernel.
      incumbent: its newest row with a score.
      timeline: of that row.
      refuted: losses that were removed in vain.
      rows: of this kernel, oldest first.
      parts: what each of the newest reverted rows changed, newest first.
      suggestions: what to try next.
      no_faster: edits that were modelled and are not faster.
      not_modelled: edits that were not modelled yet.
    """
    kept = [row for row in rows if row.decision == Decision.KEPT]
    last = rows.index(kept[-1]) if kept else -1
    tried = [row for row in rows if row.decision in (Decision.KEPT, Decision.REVERTED)]
    judged = Counter((row.kernel_blob, series_of(row.seal), row.evaluator, row.problem) for row in tried)
    seconds = [float(row.seconds) for row in rows if row.seconds]
    changed = Counter(part for one in parts[:RECENT] for part in one)
    return Brief(
        task=task,
        source=tuple(source.decode(errors="replace").splitlines()),
        incumbent=incumbent,
        timeline=timeline,
        refuted=refuted,
        kept=tuple(reversed(kept)),
        reverted=tuple({row.kernel_blob: row for row in rows if row.decision == Decision.REVERTED}.values())[::-1],
        since_kept=sum(row.decision == Decision.REVERTED for row in rows[last + 1 :]),
        repeated=tuple(sorted(part for part, count in changed.items() if count >= MOST_OF_RECENT)),
        twice=sum(count - 1 for count in judged.values()),
        experiments=len(rows),
        seconds=sum(seconds),
        turn_seconds=median(seconds[-RECENT:]) if seconds else None,
        suggestions=tuple(suggestions),
        no_faster=no_faster,
        not_modelled=not_modelled,
    )
