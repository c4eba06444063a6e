"""Types, layouts and identities of HLO."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ratchet.dump.hlo import read_hlo
from ratchet.dump.layout import lay_out, rearranged
from ratchet.values.status import Refusal, Status
from tests.hlo_texts import array_types, hlo_of, proto_of

TEXT = """HloModule m, is_scheduled=true

%fused (p: f32[8,128]) -> f32[8,128] {
  %p = f32[8,128]{1,0:T(8,128)} parameter(0)
  ROOT %n = f32[8,128]{1,0:T(8,128)} negate(%p), metadata={op_name="a"}
}

%fused.1 (q: f32[8,128]) -> f32[8,128] {
  %q = f32[8,128]{1,0:T(8,128)} parameter(0)
  ROOT %n.1 = f32[8,128]{1,0:T(8,128)} negate(%q), metadata={op_name="b"}
}

ENTRY %main (x: f32[8,128], /*index=1*/i: s32[4]) -> (f32[8,128], f32[8,128]) {
  %i = s32[4]{0:T(128)} parameter(1)
  %x = f32[8,128]{1,0:T(8,128)} parameter(0)
  %c = s8[2,2]{1,0:T(8,128)(4,1)} constant({ { 1, 0 }, { -2, 3 } })
  %reals = f32[3]{0:T(128)} constant({1.5, -2e-3, inf})
  %s = (f32[8,128]{1,0:T(8,128)S(1)}, f32[8,128]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%x)
  %d = f32[8,128]{1,0:T(8,128)S(1)} copy-done(%s)
  %f = f32[8,128]{1,0:T(8,128)} fusion(%x), kind=kLoop, calls=%fused, metadata={op_name="a"}
  %g = f32[8,128]{1,0:T(8,128)} fusion(%x), kind=kLoop, calls=%fused.1, metadata={op_name="b"}
  %h = f32[8,128]{1,0:T(8,128)} fusion(%d), kind=kLoop, calls=%fused.1
  ROOT %t = (f32[8,128]{1,0:T(8,128)}, f32[8,128]{1,0:T(8,128)}) tuple(%f, /*index=1*/%g)
}
"""


def test_parse() -> None:
    module = hlo_of(TEXT)
    assert [op.name for op in module.parameters()] == ["x", "i"]
    assert module.result.is_tuple
    assert [t.shape for t in module.result.types] == [(8, 128), (8, 128)]
    assert [op.name for op in module.users(module.ops["x"])] == ["s", "f", "g"]
    assert module.ops["t"].operands == ("f", "g")
    assert module.origin("d").name == "x"


def test_identical_ops_share_a_fingerprint_whatever_they_are_called() -> None:
    module = hlo_of(TEXT)
    assert module.fingerprint("f") == module.fingerprint("g")
    assert module.fingerprint("f") != module.fingerprint("h"), "another memory space is another program"


def test_literals() -> None:
    module = hlo_of(TEXT)
    np.testing.assert_array_equal(module.ops["c"].literal, np.array([[1, 0], [-2, 3]], np.int8))
    np.testing.assert_array_equal(module.ops["reals"].literal, np.array([1.5, -2e-3, np.inf], np.float32))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("bf16[65536,96]{1,0:T(8,128)(2,1)}", 65536 * 128 * 2),
        ("bf16[1024,64]{0,1:T(8,128)(2,1)}", 1024 * 64 * 2),
        ("f32[1024,1]{1,0:T(8,128)}", 1024 * 128 * 4),
        ("f32[1024,1]{0,1:T(1,128)}", 1024 * 4),
        ("s32[5]{0:T(128)}", 128 * 4),
        ("s32[]{:T(128)S(6)}", 512),
        ("pred[8,128]{1,0:T(8,128)(4,1)}", 1024),
        ("s4[8,128]{1,0:T(8,128)(8,1)}", 512),
        ("f32[]", 4),
    ],
)
def test_padded_bytes(text: str, size: int) -> None:
    (array,) = array_types(text)
    assert array.padded_bytes == size


def test_memory_spaces() -> None:
    assert [array.space for array in array_types("f32[8,128]{1,0:T(8,128)}", "f32[8,128]{1,0:T(8,128)S(1)}")] == [0, 1]


KERNEL = """  %x = f32[8,128]{1,0:T(8,128)} parameter(0)
  ROOT %k = f32[8,128]{1,0:T(8,128)} custom-call(%x), custom_call_target="tpu_custom_call", CONFIG"""


def kernel(**config: object) -> str:
    return KERNEL.replace("CONFIG", f"backend_config={json.dumps(config)}")


def test_a_kernel_is_identified_by_its_body() -> None:
    """Else the dump of a cheap kernel could be taken for that of a heavy one between the same arrays."""
    cheap, same, heavy = (hlo_of(kernel(custom_call_config={"body": body})) for body in ("AAA=", "AAA=", "BBB="))
    assert cheap.fingerprint("k") == same.fingerprint("k") != heavy.fingerprint("k")
    assert cheap.kernels() == ("k",)


def test_what_a_name_says_adds_nothing() -> None:
    """A line of HLO in an author's string: in the text it was an instruction of its own."""
    line = r'a"}\n  %x = s32[] parameter(0)\n  %evil = f32[8] custom-call(%x), custom_call_target=\"tpu_custom_call\"'
    plain = "  %x = f32[8]{0} parameter(0)\n  ROOT %n = f32[8]{0} negate(%x), "
    attributes = plain + 'metadata={op_name="STRING"}, frontend_attributes={a="STRING"}'
    quoted = attributes.replace("STRING", line.replace('a"', r"a\""))
    found, honest = hlo_of(quoted), hlo_of(attributes.replace("STRING", "a"))
    assert "evil" in found.ops["n"].op_name
    assert list(found.ops) == list(honest.ops) == ["x", "n"]
    assert found.kernels() == ()
    assert found.fingerprint("n") == honest.fingerprint("n")


@pytest.mark.parametrize(
    ("lines", "calls"),
    [
        ('%c = f32[] custom-call(%x), custom_call_target="xla_python_cpu_callback"', True),
        ('%c = f32[] custom-call(%x), custom_call_target="tpu_custom_call", metadata={op_name="send("}', False),
        ("%t = token[] after-all()\n %s = (f32[], u32[], token[]) send(%x, %t), channel_id=1", True),
        ("%t = token[] after-all()\n %i = ((f32[]), token[]) infeed(%t)", True),
        ("%t = token[] after-all()\n %o = token[] outfeed(%x, %t)", True),
    ],
)
def test_calls_of_the_host_are_known_by_opcode_and_target(lines: str, calls: bool) -> None:
    module = hlo_of(f"%x = f32[] parameter(0)\n {lines}")
    assert any(op.calls_host for op in module.ops.values()) == calls


@pytest.mark.parametrize("cut", [1, 10, 100])
def test_a_truncated_proto_is_refused(cut: int) -> None:
    with pytest.raises(Refusal, match="does not read as an HLO module") as refusal:
        read_hlo(proto_of(TEXT)[:-cut], file="optimized.hlo.pb")
    assert refusal.value.status is Status.SCHEDULE_UNKNOWN


def test_lay_out() -> None:
    (row,) = array_types("s32[5]{0:T(128)}")
    words = lay_out(np.arange(5, dtype=np.int32), row)
    assert (words[:6], len(words)) == ([0, 1, 2, 3, 4, 0], 128)
    (tiled,) = array_types("s32[16,256]{1,0:T(8,128)}")
    words = lay_out(np.arange(16 * 256, dtype=np.int32).reshape(16, 256), tiled)
    assert words[127:130] == [127, 256, 257], "the second row of the first tile follows its first row"
    (packed,) = array_types("s8[4,2]{1,0:T(8,128)(4,1)}")
    words = lay_out(np.array([[1, 5], [2, 6], [3, 7], [4, 8]], np.int8), packed)
    assert words[:2] == [0x04030201, 0x08070605], "four rows share a word"
    (flat,) = array_types("s8[256]{0:T(512)(128)(4,1)}")
    words = lay_out(np.arange(256, dtype=np.uint8).view(np.int8), flat)
    # As compiled kernels read element i: byte (i % 512) // 128 of word i // 512 * 128 + i % 128.
    assert (words[0], words[127], len(words)) == (0x8000, 0xFF7F, 128), "elements 0 and 128 share a word"
    with pytest.raises(ValueError, match="wants"):
        lay_out(np.zeros(3, np.int32), row)


def test_a_bitcast_keeps_the_bytes_and_not_the_order_of_the_elements() -> None:
    source, transposed, tiles, narrow, turned = array_types(
        *("s32[16,256]{1,0:T(8,128)}", "s32[256,16]{0,1:T(8,128)}", "s32[2,2,8,128]{3,2,1,0:T(8,128)}"),
        *("s8[16,256]{1,0:T(8,128)(4,1)}", "s8[256,16]{0,1:T(8,128)(4,1)}"),
    )
    values = np.arange(16 * 256, dtype=np.int32).reshape(16, 256)
    np.testing.assert_array_equal(rearranged(values, source, source), values)
    np.testing.assert_array_equal(rearranged(values, source, transposed), values.T)
    by_tile = values.reshape(2, 8, 2, 128).transpose(0, 2, 1, 3)
    np.testing.assert_array_equal(rearranged(values, source, tiles), by_tile)
    one, scalar = array_types("s32[1]{0:T(128)}", "s32[]{:T(128)}")
    assert rearranged(np.array([7], np.int32), one, scalar) == 7
    assert rearranged(values.astype(np.int8), narrow, turned) is None, "four share a word"


def test_a_kernel_inside_a_fusion_is_launched_by_it():
    module = hlo_of(
        "HloModule m\n\n%fused (a: f32[8], b: s32[4]) -> f32[8] {\n"
        "  %a = f32[8] parameter(0)\n  %b = s32[4] parameter(1)\n  %twice = f32[8] add(%a, %a)\n"
        '  ROOT %k.1 = f32[8] custom-call(%b, %twice), custom_call_target="tpu_custom_call"\n}\n\n'
        "ENTRY %main (x: f32[8], t: s32[4]) -> f32[8] {\n  %x = f32[8] parameter(0)\n  %t = s32[4] parameter(1)\n"
        "  ROOT %k = f32[8] fusion(%x, %t), kind=kCustom, calls=%fused\n}\n"
    )
    assert module.kernels() == ("k",)
    assert module.launches["k"].name == "k.1"
    assert [module.launched_operand("k", number) for number in range(2)] == [1, None]
