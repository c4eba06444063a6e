"""Types, layouts and identities of HLO."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ratchet.tpu import protos
from ratchet.tpu.dump.hlo import parse_module, read_hlo
from ratchet.values.status import Status
from tests.hlo_texts import array_types, hlo_of, proto_of
from tests.refusals import refused

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
    with refused(Status.SCHEDULE_UNKNOWN, "does not read as an HLO module"):
        read_hlo(proto_of(TEXT)[:-cut], file="optimized.hlo.pb")


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


def test_a_kernels_module_is_known_by_its_digest() -> None:
    module = hlo_of(kernel(custom_call_config={"body": "aGk="}))
    assert module.ops["k"].module_sha256 == hashlib.sha256(b"hi").hexdigest()


@pytest.mark.parametrize("config", ["{}", '{"custom_call_config":3}', '{"custom_call_config":{"body":"a Gk="}}'])
def test_a_kernel_without_a_module_is_none(config: str) -> None:
    op = hlo_of(KERNEL.replace("CONFIG", f"backend_config={config}")).ops["k"]
    with pytest.raises(ValueError, match="the kernel k holds no Mosaic module"):
        _ = op.module_sha256


def test_a_configuration_is_a_json_object() -> None:
    assert hlo_of("%x = f32[] parameter(0)").ops["x"].config == {}
    with pytest.raises(ValueError, match="the backend_config of k is no JSON object"):
        _ = replace(hlo_of(kernel(a=1)).ops["k"], backend_config=b"[]").config


def test_the_way_from_an_origin() -> None:
    module = hlo_of(
        "%x = f32[8,128] parameter(0)\n %c = f32[8,128] copy(%x)\n %b = f32[1024] bitcast(%c)\n"
        " %d = f32[1024] copy(%b)\n %e = f32[2,512] bitcast(%d)\n ROOT %n = f32[2,512] negate(%e)"
    )
    assert module.origin("e").name == "x"
    assert module.origin("n").name == "n"
    assert [(str(a), str(b)) for a, b in module.bitcasts("e")] == [
        ("f32[8,128]", "f32[1024]"), ("f32[1024]", "f32[2,512]"),
    ]  # fmt: skip
    assert module.bitcasts("c") == module.bitcasts("n") == []


def test_computations_know_their_instructions_in_order() -> None:
    module = hlo_of(TEXT)
    assert [op.name for op in module.by_computation["fused"]] == ["p", "n"]
    assert sorted(op.name for op in module.entry_ops()) == ["c", "d", "f", "g", "h", "i", "reals", "s", "t", "x"]
    assert [op.name for op in module.operands(module.ops["t"])] == ["f", "g"]
    assert module.users(module.ops["t"]) == ()
    doubled = hlo_of("%x = f32[] parameter(0)\n ROOT %s = f32[] add(%x, %x)")
    assert [op.name for op in doubled.users(doubled.ops["x"])] == ["s"], "once, though it reads it twice"
    assert module.result.name == "t"
    assert (module.device_ids, module.aliases) == ((0,), ())


def test_results_that_share_memory_with_a_parameter() -> None:
    module = hlo_of(
        "HloModule m, input_output_alias={ {1}: (0, {}, may-alias) }\n\n"
        "ENTRY %main (x: f32[8]) -> (f32[8], f32[8]) {\n  %x = f32[8] parameter(0)\n  %n = f32[8] negate(%x)\n"
        "  ROOT %t = (f32[8], f32[8]) tuple(%n, %x)\n}\n"
    )
    assert module.aliases == (((1,), 0),)


def identities(*lines: str) -> list[str]:
    """Fingerprints of the last instruction behind two parameters, of each module."""
    found = []
    for line in lines:
        module = hlo_of(f"%x = f32[8] parameter(0)\n %y = s32[8] parameter(1)\n {line}")
        found.append(module.fingerprint(next(reversed(module.ops))))
    return found


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("%a = f32[8] negate(%x)", "%b = f32[8] negate(%x)", True),
        ("%a = f32[8] negate(%x)", "%a = f32[8] abs(%x)", False),
        ("%a = f32[8] negate(%x)", "%a = s32[8] negate(%y)", False),
        ("%a = f32[2] slice(%x), slice={[0:2]}", "%a = f32[2] slice(%x), slice={[2:4]}", False),
        ("%a = s32[2] constant({1, 2})", "%a = s32[2] constant({1, 2})", True),
        ("%a = s32[2] constant({1, 2})", "%a = s32[2] constant({1, 3})", False),
        ("%a = f64[2] constant({1, 2})", "%a = f64[2] constant({1, 3})", False),
        ('%a = f32[8] negate(%x), backend_config="a"', '%a = f32[8] negate(%x), backend_config="b"', True),
        ('%a = f32[8] negate(%x), metadata={op_name="a"}', "%a = f32[8] negate(%x)", True),
    ],
)
def test_what_makes_two_instructions_alike(one: str, other: str, same: bool) -> None:
    first, second = identities(one, other)
    assert (first == second) is same


def test_what_is_inside_a_computation_counts_with_its_order() -> None:
    inside = (
        "HloModule m\n\n%c (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n"
        "  ROOT %r = f32[] OP\n}\n\nENTRY %main (x: f32[], y: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n"
        "  %y = f32[] parameter(1)\n  ROOT %k = f32[] call(%x, %y), to_apply=%c\n}\n"
    )
    found = [hlo_of(inside.replace("OP", op)).fingerprint("k") for op in (
        "subtract(%a, %b)", "subtract(%b, %a)", "subtract(%a, %a)", "add(%a, %b)",
    )]  # fmt: skip
    assert len(set(found)) == 4


def proto() -> Any:
    return parse_module(proto_of("%x = f32[8,128]{1,0:T(8,128)} parameter(0)\n ROOT %n = f32[8,128] negate(%x)"))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda module, x, n: setattr(n, "name", "x"), "two instructions are called 'x'"),
        (lambda module, x, n: n.operand_ids.__setitem__(0, 99), "n refers to number 99, which there is not"),
        (lambda module, x, n: setattr(module, "entry_computation_id", 99), "it has no entry computation"),
        (lambda module, x, n: setattr(x.shape, "element_type", 99), "x has an impossible type"),
        (lambda module, x, n: x.shape.dimensions.__setitem__(0, -1), "x has an impossible type"),
        (lambda module, x, n: x.shape.layout.minor_to_major.__setitem__(0, 0), "x has an impossible type"),
        (lambda module, x, n: x.shape.layout.tiles[0].dimensions.__setitem__(0, 0), "x has a tile of size 0"),
    ],
)
def test_a_module_that_contradicts_itself_is_refused(damage: Callable[..., Any], said: str) -> None:
    module = proto()
    assert read_hlo(module.SerializeToString(), file="f").ops["x"].types[0].tiles == ((8, 128),)
    damage(module, *module.computations[0].instructions)
    with refused(Status.SCHEDULE_UNKNOWN, f"f does not read as an HLO module: {said}. Compile again."):
        read_hlo(module.SerializeToString(), file="f")


def test_sizes_of_zero_and_tiles_that_combine_are_possible() -> None:
    module = proto()
    shape = module.computations[0].instructions[0].shape
    shape.dimensions[0] = 0
    shape.layout.tiles[0].dimensions[0] = -(2**63)
    (array,) = read_hlo(module.SerializeToString(), file="f").ops["x"].types
    assert (array.shape, array.tiles) == ((0, 128), ((1, 128),))


def test_a_literal_of_another_size_is_not_known() -> None:
    module = parse_module(proto_of("ROOT %c = s32[2] constant({1, 2})"))
    module.computations[0].instructions[0].literal.s32s.append(3)
    assert read_hlo(module.SerializeToString(), file="f").ops["c"].literal is None
    assert hlo_of("ROOT %c = bf16[2] constant({1, 2})").ops["c"].literal is None, "it cannot steer"


@pytest.mark.parametrize("dtype", ["pred", "s8", "u8", "s16", "u16", "s32", "u32", "f32"])
def test_literals_of_every_dtype_that_steers(dtype: str) -> None:
    literal = hlo_of(f"ROOT %c = {dtype}[2,2] constant({{ {{1, 0}}, {{0, 1}} }})").ops["c"].literal
    assert literal is not None
    assert literal.tolist() == [[1, 0], [0, 1]]


def test_a_kernel_is_one_by_opcode_and_target() -> None:
    module = hlo_of(
        '%x = f32[] parameter(0)\n %a = f32[] custom-call(%x), custom_call_target="other"\n'
        ' ROOT %b = f32[] custom-call(%a), custom_call_target="tpu_custom_call"'
    )
    assert [name for name, op in module.ops.items() if op.is_kernel] == ["b"]
    assert not replace(module.ops["b"], opcode="call").is_kernel


def test_every_dtype_has_its_name() -> None:
    names = (
        "pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 opaque c64 bf16 token c128 f8e5m2 f8e4m3fn s4 u4 f8e4m3b11fnuz "
        "f8e5m2fnuz f8e4m3fnuz s2 u2 f8e4m3 f8e3m4 s1 u1 f4e2m1fn f8e8m0fnu"
    ).split()
    scalars = [f"{name}[]" for name in names]
    assert [array.dtype for array in array_types(*scalars)] == names


def test_no_class_is_made_once_messages_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several threads read their first messages at once, and a class that is being made is not whole."""
    table = {"Outer": "inner 1 Inner, many 2 map:Inner", "Inner": "text 1 string"}
    made = protos.Protos("threads", table)
    monkeypatch.setattr(protos.message_factory, "GetMessageClass", lambda _: pytest.fail("made late"))
    assert made.parse("Outer", b"\x0a\x03\x0a\x01x").inner.text == "x"
    assert made.new("Inner").text == ""
