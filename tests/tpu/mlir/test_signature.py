"""What a Mosaic module and its functions are marked with: executed, or refused by name."""

import jax
import jax.numpy as jnp
import pytest
from jax import export
from jax.experimental import pallas as pl

from ratchet.tpu.mlir.bindings import body_of, ir, mosaic_module, parse_kernel, stablehlo_of
from ratchet.tpu.mlir.calls import kernel_calls
from ratchet.tpu.mlir.signature import describe
from ratchet.values.status import Status
from tests.refusals import refused


@pytest.fixture(scope="module")
def call():
    def kernel(x, o):
        o[...] = x[...]

    def function(x):
        rows = pl.BlockSpec((8, 128), lambda i: (i, 0))
        return pl.pallas_call(kernel, out_shape=x, grid=(2,), in_specs=[rows], out_specs=rows)(x)

    program = export.export(jax.jit(function), platforms=("tpu",))(jax.ShapeDtypeStruct((16, 128), jnp.float32))
    (found,) = kernel_calls(stablehlo_of(program))
    return found


def marked(call, place, name, value):
    """The call's kernel with an attribute more: of its module, of the kernel function or of an index map."""
    module = mosaic_module(call.body)
    with module.context, ir.Location.unknown():
        ops = [view.operation for view in module.body]
        kernel = next(op for op in ops if "iteration_bounds" in op.attributes)
        other = next(op for op in ops if op.attributes["sym_name"] != kernel.attributes["sym_name"])
        op = {"module": module.operation, "kernel": kernel, "map": other}[place]
        op.attributes[name] = ir.Attribute.parse(value)
        return parse_kernel(body_of(module))


@pytest.mark.parametrize("place", ["module", "kernel", "map"])
@pytest.mark.parametrize("name", ["tpu.unheard_of", "arg_attrs", "no_inline"])
def test_an_attribute_that_is_not_known_is_refused(call, place, name):
    assert describe(call, parse_kernel(call.body)).bounds == (2,)
    with refused(Status.CANNOT_VERIFY, name):
        describe(call, marked(call, place, name, "[{tpu.x = 1 : i32}]" if name == "arg_attrs" else "unit"))
