"""Which dump belongs to which instruction, and what is said where one is missing."""

import os
from pathlib import Path

import pytest

from ratchet.tpu.dump.files import Dump, Dumps, dump_flags, load_hlo, named, text_of, tokens_in, without_stamps
from ratchet.values.status import Refusal, Status
from ratchet.values.tokens import NO_TOKENS, TOKENS_FILE
from tests.hlo_texts import hlo_of, write_hlo
from tests.refusals import refused

LISTING = "= control target key end\n\n     0   :  { %s1_s1 = smov 7 }\n"
OUTLINE = "$region0: #{x}  // region range: [0, 1)\n"
TWICE = """%x = f32[8] parameter(0)
 %first = f32[8] negate(%x)
 %second = f32[8] negate(%first)
 ROOT %third = f32[8] exponential(%second)"""


def dump(folder, *names, outline=True):
    for number, name in enumerate(names):
        (folder / f"{number}-{name}-71-packed-bundles-post-ra.txt").write_text(LISTING)
        if outline:
            (folder / f"{number}-{name}-70-post-bundle-packing-post-ra.txt").write_text(OUTLINE)


def dumps(folder):
    return Dumps(folder, hlo_of(TWICE), "libtpu 1")


def test_an_instruction_has_its_own_dump_or_that_of_one_that_does_the_same(tmp_path):
    dump(tmp_path, "TLP", "first", "third", "negate")
    (tmp_path / "9-TLP-schedule-analysis_x-71-packed-bundles-post-ra.txt").write_text("")
    (tmp_path / "notes.txt").write_text("")
    every = dumps(tmp_path)
    assert sorted(every.names) == ["TLP", "first", "negate", "third"]
    assert [every.resolve(name) for name in ("TLP", "first", "second", "third", "negate")] == [
        "TLP", "first", "first", "third", "negate",
    ]  # fmt: skip
    assert [str(one) for (one,) in every.load("first").bundles] == ["smov 7"]
    assert every.load("first") is every.load("first")
    assert every.load("first").file == "1-first-71-packed-bundles-post-ra.txt"
    for name in ("x", "no such"):
        with refused(Status.SCHEDULE_UNKNOWN, f"\\(libtpu 1\\): the program calls '{name}', but neither"):
            every.resolve(name)


def test_of_several_alike_the_first_is_taken(tmp_path):
    dump(tmp_path, "TLP", "second", "first")
    assert dumps(tmp_path).resolve("first") == "first"
    (tmp_path / "2-first-71-packed-bundles-post-ra.txt").unlink()
    assert dumps(tmp_path).resolve("first") == "second"


def test_names_are_the_same_whenever_a_program_is_compiled(tmp_path):
    names = "TLP-02-post-ra.txt", "TLP-hlo.txt", "<late>-03-post-ra.txt", "kernel_0.3-02-post-ra.txt"
    for number, name in enumerate(names):
        (tmp_path / f"1795893642010584{number}-{name}").write_text(name)
    (tmp_path / "gathered.call-start_17_bundles.txt").write_text("")
    (tmp_path / "tokens.json").write_text("")
    for _ in range(2):
        without_stamps(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == {
            *(f"1-{name}" for name in names), "gathered.call-start_1_bundles.txt", "tokens.json"
        }  # fmt: skip
    assert all((tmp_path / f"1-{name}").read_text() == name for name in names)


def test_dumps_of_two_programs_keep_their_names_and_are_refused(tmp_path):
    for stamp in (1795893642010584221, 1795893642010584222):
        for label in ("71-packed-bundles-post-ra", "70-post-bundle-packing-post-ra"):
            (tmp_path / f"{stamp}-TLP-{label}.txt").write_text(f"{stamp}")
    without_stamps(tmp_path)
    assert {path.name.partition("-")[0] for path in tmp_path.iterdir()} == {"1", "1795893642010584222"}
    with pytest.raises(Refusal, match="two dumps of 'TLP'"):
        dumps(tmp_path)


def test_dumps_of_two_programs_are_refused(tmp_path):
    dump(tmp_path, "TLP", "TLP")
    with pytest.raises(Refusal, match="two dumps of 'TLP'"):
        dumps(tmp_path)


def test_a_listing_without_its_outline_is_refused(tmp_path):
    dump(tmp_path, "TLP", outline=False)
    with pytest.raises(Refusal, match=r"0-TLP-71-packed-bundles-post-ra\.txt lacks its"):
        dumps(tmp_path)


def test_a_program_without_its_top_level_is_refused(tmp_path):
    dump(tmp_path, "first")
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(Refusal, match=r"no \*-TLP-\*-packed-bundles-post-ra\.txt"):
            dumps(folder)


def test_what_is_not_there_is_refused_or_empty(tmp_path):
    with refused(Status.SCHEDULE_UNKNOWN, r"there is no optimized\.hlo\.pb in"):
        load_hlo(tmp_path)
    write_hlo(tmp_path, "%x = f32[] parameter(0)")
    assert list(load_hlo(tmp_path).ops) == ["x"]
    assert tokens_in(tmp_path) is NO_TOKENS


def test_flags_ask_for_the_passes_that_are_read():
    flags = dump_flags("/d", extra_passes=("more",))
    assert flags[0] == "--xla_jf_dump_to=/d"
    assert flags[2].endswith(
        "=(packed-bundles-post-ra|post-bundle-packing-post-ra|final_hlo-static-per-bundle-utilization|more)"
    )


def test_a_dump_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "dump.txt").write_bytes(b"abc\xff")
    with refused(Status.INFRASTRUCTURE, r"dump\.txt is not UTF-8 at byte 3"):
        text_of(tmp_path / "dump.txt", Status.INFRASTRUCTURE)


def test_a_damaged_table_of_tokens_is_refused(tmp_path):
    (tmp_path / TOKENS_FILE).write_text("{}")
    with pytest.raises(Refusal, match=r"tokens\.json is no table of tokens"):
        tokens_in(tmp_path)


def test_a_dump_larger_than_a_gibibyte_is_refused(tmp_path):
    """A file that takes no room."""
    (tmp_path / "dump.txt").touch()
    os.truncate(tmp_path / "dump.txt", (1 << 30) + 1)
    with refused(Status.SCHEDULE_UNKNOWN, r"dump.txt is larger than 1024 MiB"):
        text_of(tmp_path / "dump.txt")


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
