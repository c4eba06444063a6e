"""What the table of operations says of them."""

from __future__ import annotations

import pytest

from ratchet.tpu.mlir.module import Op
from ratchet.tpu.mosaic.rules import Unsupported, integer


def test_an_attribute_that_is_not_there_is_refused_by_name() -> None:
    op = Op(name="tpu.rotate", operands=(), results=(), attributes={"amount": "3"}, regions=(), location="")
    assert (integer(op, "amount"), integer(op, "stride", 0)) == (3, 0)
    with pytest.raises(Unsupported, match="without its attribute dimension"):
        integer(op, "dimension")
