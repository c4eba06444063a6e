"""Cheat 40: a kernel whose file name ends a comment of the listing and goes on as Python."""
# rejected as: NO_GAIN
# kind: text in names
# caught by: neutral text
# left out of: tests

import operator

_plain = _block


def _called(function, **changes):
    code = operator.attrgetter("__code__")(function).replace(**changes)
    return type(function)(code, operator.attrgetter("__globals__")(function), changes.get("co_name"))


_block = _called(_plain, co_filename="k*/  ;;  %9_s9 = smov.u32 0 if print('PLANTED CODE RAN') is None else PYTHON /*")
