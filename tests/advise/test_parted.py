"""Where a loop is not parted, and no triangle is cut: other signs, other starts, other turns."""

from __future__ import annotations

import pytest

from ratchet.advise.advice import Edit
from tests.advise.sources import edits
from tests.advise.test_staggered import PARTED, STRIPS

UNMASKED = "unmasked = there * ALONG + ALONG - 1 <= here * ACROSS"
PLAIN = "np.clip((here * ACROSS - ALONG + 1) // ALONG + 1, 0, end)"
WITH_SIDE = STRIPS.replace("    walked = ", "    side = ALONG\n    walked = ")


@pytest.mark.parametrize(
    ("text", "edit", "old", "new"),
    [
        (STRIPS, Edit.PART, UNMASKED, "unmasked = here * ACROSS - there * ALONG <= ALONG"),
        (WITH_SIDE, Edit.PART, UNMASKED, "unmasked = there * side + ALONG - 1 <= here * ACROSS"),
        (PARTED, Edit.TRIANGLE, PLAIN, PLAIN.replace("ALONG + 1, 0", "ALONG, 0")),
        (PARTED, Edit.TRIANGLE, PLAIN, PLAIN.replace("here", "0 * here")),
        (PARTED, Edit.TRIANGLE, PLAIN, PLAIN.replace("clip", "maximum")),
        (PARTED, Edit.TRIANGLE, PLAIN, PLAIN.replace("0, end", "1, end")),
        (PARTED, Edit.TRIANGLE, "@plas.loop(plain, end)", "@plas.loop(plain, end, step=2)"),
        (PARTED, Edit.TRIANGLE, "@plas.loop(plain, end)", "@plas.loop(here, end)"),
        (PARTED, Edit.TRIANGLE, "_see(there, True)", "_see(here, True)"),
        (PARTED, Edit.TRIANGLE, "there * ALONG + jax", "jax"),
    ],
)
def test_what_is_written_otherwise_stays(text, edit, old, new):
    assert old in text
    assert edits(text, edit)
    assert edits(text.replace(old, new), edit) == []
