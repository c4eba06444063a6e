"""Types, layouts and identities of HLO text."""

from __future__ import annotations

import numpy as np
import pytest

from ratchet.dump.hlo import array_types, lay_out, literal, parse_hlo, rearranged

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
  %big = s8[2,2]{1,0:T(8,128)(4,1)} constant({...})
  %s = (f32[8,128]{1,0:T(8,128)S(1)}, f32[8,128]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%x)
  %d = f32[8,128]{1,0:T(8,128)S(1)} copy-done(%s)
  %f = f32[8,128]{1,0:T(8,128)} fusion(%x), kind=kLoop, calls=%fused, metadata={op_name="a"}
  %g = f32[8,128]{1,0:T(8,128)} fusion(%x), kind=kLoop, calls=%fused.1, metadata={op_name="b"}
  %h = f32[8,128]{1,0:T(8,128)} fusion(%d), kind=kLoop, calls=%fused.1
  ROOT %t = (f32[8,128]{1,0:T(8,128)}, f32[8,128]{1,0:T(8,128)}) tuple(%f, /*index=1*/%g)
}
"""


def test_parse() -> None:
    module = parse_hlo(TEXT)
    assert [op.name for op in module.parameters()] == ["x", "i"]
    assert module.result_is_tuple()
    assert [t.shape for t in module.result_types()] == [(8, 128), (8, 128)]
    assert module.ops["t"].operands == ("f", "g")
    assert module.origin("d").name == "x"


def test_identical_ops_share_a_fingerprint_whatever_they_are_called() -> None:
    module = parse_hlo(TEXT)
    assert module.fingerprint("f") == module.fingerprint("g")
    assert module.fingerprint("f") != module.fingerprint("h"), "another memory space is another program"


def test_literals() -> None:
    module = parse_hlo(TEXT)
    np.testing.assert_array_equal(literal(module.ops["c"]), np.array([[1, 0], [-2, 3]], np.int8))
    assert literal(module.ops["big"]) is None
    np.testing.assert_array_equal(literal(module.ops["reals"]), np.array([1.5, -2e-3, np.inf], np.float32))


def test_padded_bytes() -> None:
    (array,) = array_types("bf16[65536,96]{1,0:T(8,128)(2,1)}")
    assert array.padded_bytes == 65536 * 128 * 2
    (array,) = array_types("s32[]{:T(128)S(6)}")
    assert (array.padded_bytes, array.space) == (512, 6)


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
        "s32[16,256]{1,0:T(8,128)} s32[256,16]{0,1:T(8,128)} s32[2,2,8,128]{3,2,1,0:T(8,128)} "
        "s8[16,256]{1,0:T(8,128)(4,1)} s8[256,16]{0,1:T(8,128)(4,1)}"
    )
    values = np.arange(16 * 256, dtype=np.int32).reshape(16, 256)
    np.testing.assert_array_equal(rearranged(values, source, source), values)
    np.testing.assert_array_equal(rearranged(values, source, transposed), values.T)
    by_tile = values.reshape(2, 8, 2, 128).transpose(0, 2, 1, 3)
    np.testing.assert_array_equal(rearranged(values, source, tiles), by_tile)
    one, scalar = array_types("s32[1]{0:T(128)} s32[]{:T(128)}")
    assert rearranged(np.array([7], np.int32), one, scalar) == 7
    assert rearranged(values.astype(np.int8), narrow, turned) is None, "four share a word"
