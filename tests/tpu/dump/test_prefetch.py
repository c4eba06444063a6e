"""Listings that are read while a compiler still writes."""

import pytest

from ratchet.tpu.dump.files import LARGE, Dumps, look
from ratchet.tpu.dump.prefetch import Ahead, Texts
from ratchet.values.status import Refusal
from ratchet.values.tokens import NO_TOKENS, TOKENS_FILE, TokenTable, encode
from tests.hlo_texts import hlo_of
from tests.tpu.dump.test_files import LISTING, OUTLINE, TWICE, dump

COMPILER = "libtpu 1"


def texts(**changed):
    return Texts(
        **{"listing": LISTING, "outline": OUTLINE, "file": "a.txt", "compiler": COMPILER, "tokens": NO_TOKENS} | changed
    )


def looked(folder, times=2, least=0):
    ahead = Ahead()
    for _ in range(times):
        look(folder, COMPILER, ahead, least)
    return ahead


def kept(ahead):
    return set(ahead._read)


def test_what_was_read_ahead_is_handed_out_once():
    ahead = Ahead()
    ahead.keep(texts())
    first, again = ahead.listing(texts()), ahead.listing(texts())
    assert first == again == texts().parse()
    assert first is not again


@pytest.mark.parametrize(
    "changed",
    [
        {"listing": LISTING.replace("7", "8")},
        {"outline": OUTLINE.replace("x}", "y}")},
        {"file": "b.txt"},
        {"compiler": "libtpu 2"},
        {"tokens": TokenTable(names={"k_0": "mine"})},
    ],
)
def test_another_text_is_read_anew(changed):
    ahead, other = Ahead(), texts(**changed)
    ahead.keep(texts())
    early = ahead._read["a.txt"][1]
    late = ahead.listing(other)
    assert late is not early
    assert late == other.parse()


def test_a_program_forgets_what_was_read_of_another():
    ahead = Ahead()
    ahead.keep(texts())
    early = ahead._read["a.txt"][1]
    ahead.clear()
    assert ahead.listing(texts()) is not early


def test_a_listing_is_read_once_its_outline_has_grown_no_more(tmp_path):
    ahead = Ahead()
    dump(tmp_path, "TLP", outline=False)
    outline = tmp_path / "0-TLP-70-post-bundle-packing-post-ra.txt"
    for content in (None, "", OUTLINE[:12], OUTLINE):
        if content is not None:
            outline.write_text(content)
        look(tmp_path, COMPILER, ahead, 0)
        assert not kept(ahead)
    look(tmp_path, COMPILER, ahead, 0)
    assert kept(ahead) == {"0-TLP-71-packed-bundles-post-ra.txt"}


def test_what_does_not_read_is_tried_again_only_once_it_has_grown(tmp_path, monkeypatch):
    tried, keep = [], Ahead.keep
    monkeypatch.setattr(Ahead, "keep", lambda self, texts: (tried.append(texts.outline), keep(self, texts)))
    ahead = Ahead()
    dump(tmp_path, "TLP")
    outline = tmp_path / "0-TLP-70-post-bundle-packing-post-ra.txt"
    outline.write_text("cut off")
    for _ in range(4):
        look(tmp_path, COMPILER, ahead, 0)
    outline.write_text(OUTLINE)
    for _ in range(4):
        look(tmp_path, COMPILER, ahead, 0)
    assert tried == ["cut off", OUTLINE]
    assert kept(ahead)


def test_only_large_listings_are_read(tmp_path):
    dump(tmp_path, "TLP", "first")
    assert not kept(looked(tmp_path, least=LARGE))
    (tmp_path / "1-first-71-packed-bundles-post-ra.txt").write_text(LISTING + " " * 100)
    assert kept(looked(tmp_path, least=len(LISTING) + 1)) == {"1-first-71-packed-bundles-post-ra.txt"}


def test_no_folder_no_file_and_a_bad_table_are_no_fault_yet(tmp_path):
    assert not kept(looked(tmp_path / "none"))
    dump(tmp_path, "TLP")
    (tmp_path / "0-TLP-71-packed-bundles-post-ra.txt").unlink()
    (tmp_path / "0-TLP-71-packed-bundles-post-ra.txt").mkdir()
    assert not kept(looked(tmp_path))
    (tmp_path / TOKENS_FILE).write_text("no table")
    dump(tmp_path, "first")
    assert not kept(looked(tmp_path))


def test_the_listings_of_a_program_are_those_that_were_read_ahead(tmp_path):
    dump(tmp_path, "TLP", "first")
    (tmp_path / TOKENS_FILE).write_text(encode(TokenTable(names={"k_0": "mine"})))
    ahead = looked(tmp_path)
    early = {name.split("-")[1]: listing for name, (_, listing) in ahead._read.items()}
    dumps = Dumps(tmp_path, hlo_of(TWICE), COMPILER, ahead)
    assert {name: dumps.load(name) is listing for name, listing in early.items()} == {"TLP": True, "first": True}


def test_a_listing_that_was_cut_off_is_refused_all_the_same(tmp_path):
    dump(tmp_path, "TLP")
    ahead = looked(tmp_path)
    (tmp_path / "0-TLP-71-packed-bundles-post-ra.txt").write_text(LISTING[:40])
    with pytest.raises(Refusal):
        Dumps(tmp_path, hlo_of(TWICE), COMPILER, ahead).load("TLP")
