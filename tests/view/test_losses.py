"""Losses, omissions and places in words."""

from __future__ import annotations

from dataclasses import replace

from ratchet.values.loss import Refuted, key_of
from ratchet.values.omission import LinkModel, LocalCopies, LongProgram, OpenSemaphore, UndecidedBranches, Unmodelled
from ratchet.values.place import Code, Op, Place, SourceLine, Window, Windows
from ratchet.view.losses import losses_in_words, notes, omissions_in_words
from ratchet.view.text import waited, where

from .timelines import timeline, verdict


def test_every_loss_has_its_sentence() -> None:
    assert losses_in_words(timeline()) == [
        "20% of cycles wait for DMAs, most of it for window input 1 (HBM 35% busy: latency, not bandwidth: fewer, "
        "larger or more deeply buffered copies would hide it); without the waits at best 0.00525 ms",
        "12% of cycles are empty bundles that wait for results (6.2% for the cross-lane units, most at kernel.py:3): "
        "larger blocks or more independent work per step would fill them; all filled at best 0.00525 ms",
        "12 spill stores and 15 loads: the store slot is 50% busy, without them 25%; more than 64 vector registers "
        "are alive in a step, smaller pieces of work need fewer; then bound by the matrix units (40% busy): "
        "at best 0.00525 ms",
        "3 of 8 grid steps do no matrix work and take 25% of cycles (75% of that waiting for DMAs): a grid or an "
        "index map without them would be at best 0.00525 ms",
        "the vector ALUs are 60% busy, most for vector code without a source line; without that work "
        "at best 0.00525 ms",
        "outside the kernel: kernel.py and 1 alike (fusion), 2x, takes 0.00175 ms, 25%",
        "0.1% of cycles wait for traffic between chips (busiest link 90% busy): bandwidth of the links",
        "the matrix products alone need 0.00233 ms: the busiest matrix unit is occupied 33% of the time",
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
        LongProgram(program="flash", bundles=30_000),
        LocalCopies(bytes=512),
        UndecidedBranches(fast_cycles=1_500_000, slow_cycles=3_000_000),
        LinkModel(link_bytes_per_s=45e9, hop_s=1e-6),
        OpenSemaphore(name="#allocation3 of k.txt", value=2),
    )
    assert omissions_in_words(replace(timeline(), not_modelled=omissions)) == [
        "clock throttling under power limits, contention for VMEM ports, the launch from the host",
        "assertions on values that vector code computes: they are taken to hold",
        "other float inputs: XLA computes tables that steer the kernel from floats, and the latency is that of the "
        "problem's public ones, on which the kernel was checked, too",
        "the launch check: before the program the chips compare what each was asked to run, which is taken to agree",
        "instruction fetches of flash: 30000 bundles is a very long program",
        "measured speed of DMAs between on-chip memories (512 bytes here): bandwidth and latency are assumed",
        "branches on computed values: taking all or none of them makes 1 ms and 2 ms, the slower is reported",
        "speed and latency of the links between chips beyond 45 GB/s per link and direction and 1 us per hop, which "
        "were fitted on two published programs",
        "semaphore between chips that does not end at 0: #allocation3 of k.txt at 2",
    ]


def test_notes_are_the_verdicts_own_and_the_omissions() -> None:
    judged = verdict()
    assert judged.timeline is not None
    assert notes(judged) == [*judged.notes, *omissions_in_words(judged.timeline)]
    assert notes(replace(judged, timeline=None)) == list(judged.notes)


def test_places() -> None:
    windows = Windows(windows=(Window(kind="input", number=1), Window(kind="output", number=0)))
    places: dict[Place, str] = {
        SourceLine(file="a\x1b[2J\n.py", line=3): "a .py:3",
        Code.PIPELINE: "pipeline code of the compiler",
        Code.TOP_LEVEL: "(top level)",
        Op(name="copy.1", opcode="copy"): "copy.1 (copy)",
        windows: "waits for window input 1, output 0",
    }
    assert {place: where(place) for place in places} == places
    assert waited(windows) == "for window input 1, output 0"
    assert waited(Code.PIPELINE) == "at pipeline code of the compiler"
