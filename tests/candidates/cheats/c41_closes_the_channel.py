"""Cheat 41: closes every descriptor that it finds, so that nobody hears of its end."""
# rejected as: IMPORT_FAILED
# kind: raises anything
# caught by: complete record
# left out of: tests

import dataclasses

dataclasses.sys.modules["os"].closerange(0, 256)
