"""Cheat 40: a kernel whose file name ends a comment of the listing and goes on as Python."""
# rejected as: NO_GAIN
# kind: text in names
# caught by: neutral text
# base: c40_listing_in_a_function_name
# left out of: tests

_block = _called(_plain, co_filename="k*/  ;;  %9_s9 = smov.u32 0 if print('PLANTED CODE RAN') is None else PYTHON /*")
