"""A source file holds what a reader sees of it."""

import pytest

from ratchet.exam.candidate import contract
from ratchet.exam.candidate.source_closure import closure_of
from ratchet.exam.candidate.source_text import text_of
from ratchet.values.status import Status
from tests.refusals import refused


@pytest.mark.parametrize(
    "text",
    [
        "x = 1\n",
        "# -*- coding: utf-8 -*-\nx = 1\n",
        "#!/usr/bin/env python\n# vim: set fileencoding=UTF8 :\n",
        "# the encoding of a value\nx = 1\n",
        "x = 1\r\ny = 2\r\n",
        "# 行の数, Größe, \u26a0\ufe0f, 1\u00a0ms, a \u2264 b, e\u0301\nσ = Δt = λ_max = größe = 行 = 1\n",
        "name = 'Жук ο'  # strings and comments are in any script\n",
    ],
)
def test_plain_text_is_left_as_it_is(text):
    assert text_of(text.encode(), "kernel.py") == text.replace("\r\n", "\n")


@pytest.mark.parametrize("declared", ["utf_7", "latin-1", "utf-8-sig", "utf-16", "rot13", "unicode_escape", "cp1252"])
@pytest.mark.parametrize("before", ["", "#!/usr/bin/env python\n", "\n"])
def test_no_other_encoding_can_be_declared(declared, before):
    with refused(Status.FORBIDDEN, "wanted UTF-8") as caught:
        text_of(f"{before}# -*- coding: {declared} -*-\n".encode(), "kernel.py")
    assert f"kernel.py:{1 + bool(before)}: the encoding '{declared}'" in caught.value.message


HIDDEN = [
    *range(0x09),
    *range(0x0B, 0x20),
    *range(0x7F, 0xA0),
    *(0x00AD, 0x061C, 0x115F, 0x180E, 0x2028, 0x2029, 0x2066, 0x3164, 0xE000, 0xFE00, 0xFEFF, 0xFFA0, 0xE0041, 0xE0100),
    *range(0x200B, 0x2010),
    *range(0x202A, 0x202F),
    *range(0x2060, 0x206A),
]


@pytest.mark.parametrize("place", ["x = 1  # {}\n", "x = '{}'\n", "{}x = 1\n", "x = 1{}y = 2\n"])
@pytest.mark.parametrize("code", HIDDEN, ids=hex)
def test_hidden_characters_are_refused_wherever_they_are(code, place):
    with refused(Status.FORBIDDEN, r"what is read has to be what runs: kernel\.py:2: ") as caught:
        text_of(("a = 0\n" + place.format(chr(code))).encode(), "kernel.py")
    assert "carriage return" in caught.value.message or f"U+{code:04X}" in caught.value.message
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("text", ["a = 1\r\nb = 2\n", "a = 1\rb = 2\r", "a = 1\n# 8 \rBLOCK = 128\n", "a = 1\r\r\n"])
def test_lines_end_in_one_way(text):
    with refused(Status.FORBIDDEN, "carriage return"):
        text_of(text.encode(), "kernel.py")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("BL\u041eCK", "taken for another"),  # one letter of another script
        ("\u0412\u041c", "taken for another"),  # all letters
        ("\u03bf", "taken for another"),
        ("\u0131", "taken for another"),
        ("x\ufe0f", "cannot be seen"),
        ("e\u0301", "reads the identifier"),
        ("\u210dello", "reads the identifier 'x"),
        ("\uff22\uff2d", "reads the identifier '"),
        ("\ufb01le", "as 'file'"),
    ],
)
def test_identifiers_are_what_they_look_like(name, said):
    said = "as 'Hello'" if name.startswith("\u210d") else said
    with refused(Status.FORBIDDEN, said) as caught:
        text_of(f"x = 1\n{name} = 2\n".encode(), "kernel.py")
    assert "kernel.py:2:" in caught.value.message


def test_what_is_not_utf8_is_no_source():
    with refused(Status.SYNTAX_ERROR, r"kernel\.py:2: byte 0xff is not UTF-8"):
        text_of(b"x = 1\n# \xff\n", "kernel.py")


def test_few_are_shown_of_many():
    with refused(Status.FORBIDDEN, r"kernel\.py:1: .*\(and 97 more\)"):
        text_of(b"\x0c" * 100, "kernel.py")


def test_kernel_files_and_all_files_of_a_project_are_asked():
    hidden = "# \u202e\n".encode()
    with refused(Status.FORBIDDEN, r"kernel\.py:1"):
        contract.check_source(hidden, "kernel.py")
    with refused(Status.FORBIDDEN, r"pkg/late\.py:1"):
        closure_of({"pkg/one.py": b"import pkg.late", "pkg/late.py": hidden}.get, ["pkg.one"])
    with refused(Status.FORBIDDEN, r"pkg/a\.b\.py:1"):
        closure_of({"pkg/one.py": b""}.get, ["pkg.one"], {"pkg/a.b.py": hidden})
