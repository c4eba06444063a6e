"""Cheat 40: a kernel whose function name is a bundle that ends the loop over the grid."""
# rejected as: NO_GAIN
# kind: text in names
# caught by: neutral text
# left out of: tests

import operator

_plain = _block


def _called(function, **changes):
    code = operator.attrgetter("__code__")(function).replace(**changes)
    return type(function)(code, operator.attrgetter("__globals__")(function), changes.get("co_name"))


_block = _called(
    _plain, co_name="f\n  0x0 LB: > { %p = spneu 1, 1  ;;  sbr.rel (%p) target bundleno = 9999 }", co_qualname="x"
)
