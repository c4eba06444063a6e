"""What a kernel's call says: each attribute is executed, says nothing, or is refused by its name."""

import base64
import json

import pytest
from jax._src.interpreters.mlir import make_ir_context

from ratchet.tpu.mlir.bindings import ir
from ratchet.tpu.mlir.calls import aliases_of, read_call, target, walk
from ratchet.values.status import Status
from tests.refusals import refused

CONFIG = {
    "custom_call_config": {
        "body": base64.b64encode(b"body").decode(),
        "serialization_format": 1,
        "needs_layout_passes": True,
    }
}
PLAIN = {
    "operand_layouts": "[dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>, dense<> : tensor<0xindex>]",
    "result_layouts": "[dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>]",
}
ROWS = "tensor<8x128xf32>"


def alias(operand, *result, inside=""):
    indices = ", ".join(map(str, result))
    return (
        f"#stablehlo.output_operand_alias<output_tuple_indices = [{indices}], operand_index = {operand}, "
        f"operand_tuple_indices = [{inside}]>"
    )


def call(first=ROWS, **attributes):
    """The operation of a call with these attributes instead, in its program."""
    config = json.dumps(json.dumps(CONFIG))
    given = {"call_target_name": '"tpu_custom_call"', "backend_config": config, **PLAIN, **attributes}
    text = ", ".join(f"{name} = {value}" for name, value in given.items() if value)
    types = f"({first}, {ROWS}, tensor<f32>) -> ({ROWS}, {ROWS})"
    body = f'%r:2 = "stablehlo.custom_call"(%a, %b, %c) {{{text}}} : {types}'
    with make_ir_context():
        module = ir.Module.parse(f"func.func @main(%a: {first}, %b: {ROWS}, %c: tensor<f32>) {{ {body} return }}")
    return module, next(op for op in walk(module.operation) if target(op))


def read(**attributes):
    _module, op = call(**attributes)
    return read_call(op, ())


def test_what_jax_writes_is_read():
    read()
    found = read(
        api_version="1 : i32",
        called_computations="[]",
        has_side_effect="true",
        kernel_name='"mine"',
        output_operand_aliases=f"[{alias(1, 1)}, {alias(0, 0)}]",
        **{"mhlo.frontend_attributes": '{kernel_metadata = "{}"}'},
    )
    assert found.name == "mine"
    assert found.aliases == {0: 0, 1: 1}
    assert [one.shape for one in (*found.inputs, *found.outputs)] == [(8, 128), (8, 128), (), (8, 128), (8, 128)]


COLUMNS = PLAIN["operand_layouts"].replace("[1, 0]", "[0, 1]", 1)


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        (
            {"operand_layouts": COLUMNS},
            r"operand_layouts are \[\[0, 1\], \[1, 0\], \[\]\], wanted row-major \[\[1, 0\]",
        ),
        ({"result_layouts": PLAIN["result_layouts"].replace("[1, 0]", "[0, 1]", 1)}, r"result_layouts are \[\[0, 1\]"),
        ({"operand_layouts": None, "result_layouts": None}, r"operand_layouts are \[\], wanted row-major"),
        ({"api_version": "2 : i32"}, "api_version is 2"),
        ({"called_computations": "[@other]"}, "called_computations"),
        ({"mhlo.backend_config": "{}"}, "'mhlo.backend_config' is not known"),
        ({"mhlo.sharding": '"{replicated}"'}, "'mhlo.sharding' is not known"),
        ({"anything": "1 : i32"}, "'anything' is not known"),
        ({"output_operand_aliases": f"[{alias(0, 0)}, {alias(0, 1)}]"}, "operand 0 or result 1 is aliased twice"),
        ({"output_operand_aliases": f"[{alias(0, 0)}, {alias(1, 0)}]"}, "operand 1 or result 0 is aliased twice"),
    ],
)
def test_what_is_not_executed_is_refused_by_name(attributes, said):
    with refused(Status.CANNOT_VERIFY, said):
        read(**attributes)


@pytest.mark.parametrize(
    ("one", "said"),
    [(alias(7, 0), "operand 7"), (alias(0, 9), "result 9"), (alias(2, 0), "type"), (alias(0, 0, inside="0"), "tuple")],
)
def test_an_alias_is_between_an_operand_and_a_result(one, said):
    _module, op = call()
    op.context.allow_unregistered_dialects = True
    with op.context:
        op.attributes["output_operand_aliases"] = ir.ArrayAttr.get([ir.Attribute.parse(one)])
    with refused(Status.CANNOT_VERIFY, said):
        aliases_of(op)


def test_a_type_with_more_than_a_shape_is_refused():
    with refused(Status.CANNOT_VERIFY, "a kernel operand of type"):
        read(first="tensor<8x128xf32, 7 : i32>")
