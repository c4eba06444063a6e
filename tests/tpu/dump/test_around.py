"""What is around the kernels counts where it is the same in both compiles."""

import pytest

from ratchet.tpu.dump.around import add_around
from ratchet.tpu.dump.scheduled import LAST_PASS, LISTING_PASS, OUTLINE_PASS
from ratchet.tpu.dump.utilisation import SUFFIX

ALL = (LAST_PASS, LISTING_PASS, OUTLINE_PASS, SUFFIX)


def dump(folder, name, passes, text="text"):
    folder.mkdir(exist_ok=True)
    for number, label in enumerate(passes):
        (folder / f"17-{name}-{number:02}-{label}.txt").write_text(f"{text} {name} {label}")


@pytest.fixture
def folders(tmp_path):
    real, hollow = tmp_path / "real", tmp_path / "hollow"
    dump(real, "kernel_0.3", ALL[1:], "real")
    dump(hollow, "kernel_0.3", ALL, "hollow")
    for name in ("TLP", "<late-initialization>"):
        dump(real, name, ALL[:1])
        dump(hollow, name, ALL)
    (hollow / "17-TLP-schedule-analysis_packed-09-packed-bundles-post-ra.txt").write_text("")
    (real / "17-TLP-01-vmem_report.html").write_text("")
    return real, hollow


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_what_is_around_is_taken_and_the_kernel_stays(folders):
    real, hollow = folders
    assert add_around(real, hollow)
    assert not [name for name in names(real) if LAST_PASS in name or "analysis" in name]
    for name in ("TLP", "<late-initialization>"):
        assert {f"17-{name}-0{n}-{label}.txt" for n, label in enumerate(ALL[1:], 1)} <= names(real)
    assert (real / f"17-kernel_0.3-00-{LISTING_PASS}.txt").read_text().startswith("real")
    assert "17-TLP-01-vmem_report.html" in names(real)


def other_text(real, hollow):
    dump(hollow, "TLP", ALL[:1], "another")


def unit_only_here(real, hollow):
    dump(real, "fusion", ALL[:1])


def unit_only_there(real, hollow):
    dump(hollow, "fusion", ALL)


def no_bundles_there(real, hollow):
    (hollow / f"17-TLP-01-{LISTING_PASS}.txt").unlink()


def no_bundles_of_the_kernel(real, hollow):
    (real / f"17-kernel_0.3-00-{LISTING_PASS}.txt").unlink()


def nothing_around(real, hollow):
    for folder in (real, hollow):
        for path in [*folder.glob("17-TLP-*"), *folder.glob("17-<*")]:
            path.unlink()


def nothing_there(real, hollow):
    for path in hollow.iterdir():
        path.unlink()
    hollow.rmdir()


@pytest.mark.parametrize(
    "change",
    [
        other_text,
        unit_only_here,
        unit_only_there,
        no_bundles_there,
        no_bundles_of_the_kernel,
        nothing_around,
        nothing_there,
    ],
)
def test_nothing_is_moved_where_they_differ(folders, change):
    real, hollow = folders
    change(real, hollow)
    before = names(real)
    assert not add_around(real, hollow)
    assert names(real) == before
