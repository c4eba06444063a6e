"""``tools.newlib``: what is said of a version."""

from dataclasses import replace

import pytest

from ratchet.upgrade.upgrade import upgraded
from ratchet.values.status import Status
from tests.upgrade.test_upgrade import output, side
from tools import newlib


def pair(before, after):
    return upgraded(before, after, allowed_share=newlib.ALLOWED_SHARE)


COMPARED = [
    pair(side(outputs=[output(1.0)]), side(1.1, outputs=[output(1.0)])),
    pair(side(), replace(side(0.5), outputs=None, no_values="CANNOT_VERIFY: operation tpu.new")),
    pair(side(), side(costs={"status": Status.SCHEDULE_UNKNOWN, "reason": "opcode vnew", "latency_ms": None})),
    pair(side(), side(findings=("a race",))),
]


def test_a_version_has_a_line_of_what_is_known_under_it():
    line = newlib.row("9", 12.3, COMPARED, [0.01, -0.03])
    assert (line["kernels"], line["compiled"], line["modelled"], line["worse"], line["seconds"]) == (4, 4, 3, 2, 12)
    assert (line["published"], line["off by %"], line["at most %"]) == (2, pytest.approx(2), 3)
    assert (line["fastest %"], line["slowest %"]) == (-50, 100 * (1.1 - 1))


def test_what_was_refused_is_listed_once_with_its_kernels_and_what_was_refused_before_is_not():
    listed = [(one["what"], one["why"]) for one in newlib.unknown("9", [*COMPARED, COMPARED[2]])]
    assert listed == [
        ("values", "CANNOT_VERIFY: operation tpu.new"),
        ("SCHEDULE_UNKNOWN", "opcode vnew"),
        ("finding", "a race"),
    ]
    known = COMPARED[2].after
    assert not list(newlib.unknown("9", [pair(known, known)]))


def test_the_kernels_that_are_tried_are_those_of_one_chip():
    files = newlib.kernel_files([""])
    assert "kernel.py" in files
    assert {"examples/two_core_matmul.py", "examples/embedding_gather_tensorcore.py"} <= set(files)
    assert not {"examples/all_gather.py", "examples/embedding_gather.py"} & set(files)
    assert newlib.kernel_files(["softmax"]) == ["examples/softmax.py"]
