"""Messages that are declared at run time."""

from __future__ import annotations

import pytest

from ratchet.tpu import protos


def test_no_class_is_made_once_messages_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several threads read their first messages at once, and a class that is being made is not whole."""
    table = {"Outer": "inner 1 Inner, many 2 map:Inner", "Inner": "text 1 string"}
    made = protos.Protos("threads", table)
    monkeypatch.setattr(protos.message_factory, "GetMessageClass", lambda _: pytest.fail("made late"))
    assert made.parse("Outer", b"\x0a\x03\x0a\x01x").inner.text == "x"
    assert made.new("Inner").text == ""
