"""Lines of Python by storey and room."""

from __future__ import annotations

import pytest

from tools.size import lines, main, room


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("kernel.py", "."),
        ("ratchet/wiring.py", "ratchet"),
        ("ratchet/loop/log.py", "ratchet/loop"),
        ("ratchet/tpu/latency.py", "ratchet/tpu"),
        ("ratchet/tpu/mosaic/ops/dma.py", "ratchet/tpu/mosaic"),
        ("tests/tpu/mosaic/test_dma.py", "tests/tpu/mosaic"),
        ("tests/loop/test_log.py", "tests"),
        ("benchmarks/lib/table.py", "benchmarks"),
    ],
)
def test_where_a_file_counts(path: str, where: str) -> None:
    assert room(path) == where


def test_a_storey_has_the_lines_of_its_rooms(capsys: pytest.CaptureFixture[str]) -> None:
    counted = lines("HEAD")
    rooms = {name: count for name, count in counted.items() if name.startswith("ratchet/tpu/")}
    assert sum(rooms.values()) <= counted["ratchet/tpu"] < counted["ratchet"]
    assert lines("no such commit") == {}
    assert main(["--since", "HEAD"]) == 0
    assert f"{'  ratchet/tpu':<28}{counted['ratchet/tpu']:>8}" in capsys.readouterr().out
