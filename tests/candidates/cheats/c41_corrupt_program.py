"""Cheat 41: its program is cut off in the middle."""
# rejected as: CANNOT_VERIFY
# kind: forged record
# caught by: readable program
# left out of: tests

import dataclasses

_modules = dataclasses.sys.modules

_path = type(_modules["pathlib"].Path("x"))
_write = _path.write_bytes


def _cut(self, data):
    return _write(self, data[: len(data) // 2] if self.name == "kernel.bin" else data)


_path.write_bytes = _cut
