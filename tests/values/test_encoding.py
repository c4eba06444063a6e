"""What comes from another process is data of the right types, or refused."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.values import Mesh, Program, Span, SpanKind
from ratchet.values.encoding import decode, encode
from ratchet.values.omission import LocalCopies, Unmodelled
from ratchet.values.place import Code, SourceLine
from tests.view.timelines import timeline, verdict

TIMELINE = replace(
    timeline(),
    spans=(Span(lane="l", kind=SpanKind.COPY, start_cycles=0, end_cycles=7, attributes={"a": 1, "b": 0.5, "c": "x"}),),
    not_modelled=(Unmodelled.FLOAT_TABLES, LocalCopies(bytes=3)),
)
LINE = TIMELINE.blame.lines[0]
PROGRAM = Program(
    chip="v5e",
    compiler="c",
    dump_dir=Path("/tmp/x"),
    footprint=verdict().footprint,
    copies=verdict().copies,
    kernels=("k",),
    seconds=1.0,
)
MESH = Mesh(axes=(("chip", 4),), inputs=((("chip",), ()), ()))


@pytest.mark.parametrize("value", [TIMELINE, PROGRAM, MESH, LINE], ids=lambda value: type(value).__name__)
def test_a_value_survives_the_way_there_and_back(value):
    assert decode(type(value), json.loads(json.dumps(encode(value)))) == value


def test_a_float_survives_to_the_last_bit():
    for number in (0.1, math.pi, 5e-324, 1.7976931348623157e308):
        assert decode(float, json.loads(json.dumps(encode(number)))) == number


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (int, True),
        (int, 1.5),
        (int, "1"),
        (float, "nan"),
        (str, 3),
        (Code, ["Code", "no such"]),
        (Code, ["SpanKind", "NAMED"]),
        (Mesh, ["Program", [], []]),
        (Mesh, ["Mesh", []]),
        (Mesh, {"axes": []}),
        (tuple[int, ...], {"0": 1}),
        (int | None, "x"),
        (SourceLine | Code, ["Waits", 1]),
        (bytes, 1),
        (bytes | None, 1),
    ],
)
def test_anything_else_is_refused(kind, data):
    with pytest.raises(ValueError, match="wanted"):
        decode(kind, data)


def test_only_frozen_values_are_encoded():
    with pytest.raises(TypeError, match="set is no frozen value"):
        encode({1, 2})
