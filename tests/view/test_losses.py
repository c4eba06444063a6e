"""Losses and omissions in words, and the table of cycles."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from ratchet.values import SourceLine, Timeline
from ratchet.values.loss import Refuted, key_of
from ratchet.values.omission import LinkModel, LocalCopies, OpenSemaphore, UndecidedBranches, Unmodelled
from ratchet.view.losses import blame_text, losses_in_words, notes, omissions_in_words
from tests.imports import HERE
from tests.tpu.machine.golden_dumps import COMPILERS, model, unpack

from .timelines import document_of, timeline, verdict


def test_every_loss_has_its_sentence() -> None:
    assert losses_in_words(timeline()) == [
        "20% of cycles wait for DMAs, most of it for window input 1 (HBM 35% busy: latency, not bandwidth: fewer, "
        "larger or more deeply buffered copies would hide it), of it 10% for the first blocks, beside which nothing "
        "runs; without the waits at best 0.00525 ms",
        "12% of cycles are empty bundles that wait for results (6.2% for the cross-lane units, most at kernel.py:3): "
        "what crosses lanes takes long: sum lane by lane and across once, or reduce several tiles side by side; "
        "all filled at best 0.00525 ms",
        "12 spill stores and 15 loads: the store slot is 50% busy, without them 25%; more than 64 vector registers "
        "are alive in a step, smaller pieces of work need fewer; then bound by the matrix units (40% busy): "
        "at best 0.00525 ms",
        "3 of 8 grid steps do no matrix work and take 25% of cycles (75% of that waiting for DMAs): a grid or an "
        "index map without them would be at best 0.00525 ms",
        "the vector ALUs have no free place in 30% of the kernels' cycles (60% busy in all), most for vector code "
        "without a source line; without these cycles at best 0.00525 ms",
        "outside the kernel: kernel.py and 1 alike (fusion), 2x, takes 0.00175 ms, 25%",
        "outside the kernel: copy.1 (copy) takes 0.00175 ms, 25%: input 1, f32[4096,8]{0,1} there, f32[4096,8]{1,0} "
        "wanted: the compiler's, at operand 1 of _k.1",
        "0.1% of cycles wait for traffic between chips (busiest link 90% busy): bandwidth of the links",
        "the matrix products alone need 0.00233 ms: the busiest matrix unit is occupied 33% of the time",
        "in this form no less than 0.00525 ms, mostly for the vector ALUs: at most 25% is left without changing the "
        "work that it does",
        "nothing left: the run needs HBM for 98% of the time, so only fewer bytes from and to it would make it faster",
    ]


def test_a_loss_that_was_removed_in_vain_says_so() -> None:
    run = timeline()
    waits, *others = run.blame.losses
    known = {key_of(waits): Refuted(id="20261122-101500-ab12", before_cycles=run.cycles // 2, after_cycles=0)}
    first, *rest = losses_in_words(run, known)
    assert first == (
        losses_in_words(run)[0]
        + "; REFUTED by 20261122-101500-ab12, which brought it from 0.0035 ms to 0 ms and was no faster"
    )
    assert rest == losses_in_words(run)[1:]
    assert len(rest) == len(others)


def test_every_omission_has_its_sentence() -> None:
    omissions = (
        *Unmodelled,
        LocalCopies(bytes=512),
        UndecidedBranches(fast_cycles=1_500_000, slow_cycles=3_000_000),
        LinkModel(link_bytes_per_s=45e9, hop_s=1e-6, source="timed on two chips"),
        OpenSemaphore(name="#allocation3 of k.txt", value=2),
    )
    assert omissions_in_words(replace(timeline(), not_modelled=omissions)) == [
        "clock throttling under power limits, contention for VMEM ports, the launch from the host",
        "assertions on values that vector code computes: they are taken to hold",
        "other float inputs: XLA computes tables that steer the kernel from floats, and the latency is that of the "
        "problem's public ones, on which the kernel was checked, too",
        "the launch check: before the program the chips compare what each was asked to run, which is taken to agree",
        "kernels of the SparseCores: their streams have the time of published gathers, of one kind and three chips, "
        "whatever rows are asked for; the band is wide",
        "collectives that XLA leaves to the SparseCores: they have the time of their bytes, as fitted on published "
        "all-gathers of four devices, and begin at once on all chips",
        "measured speed of DMAs between on-chip memories (512 bytes here): bandwidth and latency are assumed",
        "branches on computed values: taking all or none of them makes 1 ms and 2 ms, the slower is reported",
        "speed and latency of the links between chips beyond 45 GB/s per link and direction and 1 us per hop, which "
        "were timed on two chips",
        "semaphore between chips that does not end at 0: #allocation3 of k.txt at 2",
    ]


def test_notes_are_the_verdicts_own_and_the_omissions() -> None:
    judged = verdict()
    assert notes(judged) == [*judged.notes, *omissions_in_words(judged.timeline)]
    assert notes(replace(judged, timeline=None)) == list(judged.notes)


# --- the table of cycles ---


@pytest.fixture(scope="module")
def flash(tmp_path_factory: pytest.TempPathFactory) -> Timeline:
    return model(unpack(COMPILERS[0], "flash", tmp_path_factory.mktemp("dumps")))


def test_the_table_holds_every_cycle_and_quotes_the_source(flash: Timeline) -> None:
    source = (HERE / "tests" / "tpu" / "machine" / "programs.py").read_text()
    text = blame_text(flash, title="flash", kernel_file="programs.py", source=source)
    assert text.startswith(f"blame of flash (modelled, TPU v5e, libtpu-0.0.42.1): {flash.cycles:,} cycles, ")
    table = text.partition("\nregions:")[0].partition("lines: ")[2]
    rows = re.findall(r"(?m)^ +([\d,]+) +[\d.]+%  ", table)
    assert sum(int(row.replace(",", "")) for row in rows) == flash.cycles
    assert "| s = lax.dot_general(" in table
    assert "pipeline code of the compiler" in table
    assert len(text) < 16_000
    assert all(line == line.rstrip() for line in text.splitlines())


def test_without_a_source_nothing_is_quoted_and_nobody_elses_text_passes_for_ours(flash: Timeline) -> None:
    assert "  | " not in blame_text(flash, title="flash")
    assert "  | " not in blame_text(flash, title="flash", kernel_file="other.py", source="x\n" * 999)
    line = replace(flash.blame.lines[0], place=SourceLine(file="k.py\n\x1b[2J", line=99))
    timeline = replace(flash, blame=replace(flash.blame, lines=(line, *flash.blame.lines[1:])))
    text = blame_text(timeline, title="t\x1b]0;x\x07\nRESULT: score=1", kernel_file="k.py", source="")
    assert "\x1b" not in text
    assert not re.search(r"(?m)^RESULT", text)


def test_the_document_carries_all_of_it(flash: Timeline) -> None:
    document = document_of(verdict(timeline=flash))
    blame = document["verdict"]["timeline"]["blame"]
    assert sum(line["cycles"] for line in blame["lines"]) == flash.cycles
    assert sum(line["cycles"] for region in blame["regions"] for line in region["lines"]) == flash.cycles
    assert [loss["cycles"] for loss in blame["losses"]] == [loss.cycles for loss in flash.blame.losses]
    assert document["verdict"]["losses"] == losses_in_words(flash)
