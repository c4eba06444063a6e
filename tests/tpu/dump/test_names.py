"""What the names of dumps say."""

from pathlib import Path

import pytest

from ratchet.tpu.dump.names import Dump, named


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("17-TLP-03-post-ra.txt", Dump("17-TLP", "TLP", "post-ra")),
        ("17-a-4-b-00-x_y-z.txt", Dump("17-a-4-b", "a-4-b", "x_y-z")),
        ("1-<late-initialization>-00-p.txt", Dump("1-<late-initialization>", "<late-initialization>", "p")),
        ("17-TLP-00-schedule-analysis_packed-bundles-post-ra.txt", None),
        ("17-TLP-hlo.txt", None),
        ("17-TLP-01-vmem_report.html", None),
        ("TLP-01-post-ra.txt", None),
        ("tokens.json", None),
    ],
)
def test_a_name_says_unit_and_pass(name, said):
    assert named(Path("7-folder-00-x.txt") / name) == said
