"""Cheat 40: a kernel whose file name is an instruction that takes back a million cycles."""
# rejected as: NO_GAIN
# kind: text in names
# caught by: neutral text
# base: c40_listing_in_a_function_name
# left out of: tests

_block = _called(_plain, co_filename="*/  ;;  vdelay -1000000  ;;  /*", co_firstlineno=1)
