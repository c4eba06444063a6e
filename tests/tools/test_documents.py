"""Every document: blocks, links and anchors; and how they are read."""

import posixpath

import pytest

from tools.documents import ROOT, anchors, blocks, inline_code, links, pages, prose, read, with_links

PAGE = """# One page
See [two](two.md#a-b) and `./ratchet.sh log`.

```sh title="Takes a minute"
[no](link.md) `no code`
```

```
bare
```
"""


def test_a_page_is_read_into_its_parts():
    first, second = blocks("x.md", PAGE)
    assert (first.line, first.language, first.title) == (4, "sh", "Takes a minute")
    assert first.text == "[no](link.md) `no code`\n"
    assert (second.language, second.title, second.text) == ("", "", "bare\n")
    assert links(PAGE) == ["two.md#a-b"]
    assert inline_code(PAGE) == ["./ratchet.sh log"]
    assert anchors(PAGE) == {"one-page"}
    assert len(prose(PAGE).splitlines()) == len(PAGE.splitlines())
    text = with_links(PAGE, {"two.md#a-b": "three.html", "link.md": "never.md"})
    assert "[two](three.html)" in text
    assert "[no](link.md)" in text, "links are exchanged outside of blocks only"
    with pytest.raises(ValueError, match=r"x\.md:2: the block is never closed"):
        blocks("x.md", "text\n```sh\nls\n")


@pytest.mark.parametrize("page", pages())
def test_every_link_leads_to_a_file_and_a_heading_of_it(page):
    lost = []
    for target in links(read(page)):
        path, _, anchor = target.partition("#")
        if ":" in path:
            continue
        whole = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
        headed = whole.endswith(".md") and (ROOT / whole).is_file()
        if not (ROOT / whole).exists() or (anchor and headed and anchor not in anchors(read(whole))):
            lost.append(target)
    assert lost == []


@pytest.mark.parametrize("page", pages())
def test_every_block_says_its_language(page):
    """A block without one could hold a command that nothing checks."""
    assert [block.line for block in blocks(page, read(page)) if not block.language] == []


def test_no_link_goes_to_a_package_host_and_the_readme_stays_short():
    hosts = [target for page in pages() for target in links(read(page)) if "://" in target]
    assert [target for target in hosts if "pypi" in target or "simple/" in target] == []
    assert len(read("README.md").split()) <= 900
