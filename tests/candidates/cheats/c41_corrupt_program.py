"""Cheat 41: its program is cut off in the middle."""
# rejected as: CANNOT_VERIFY
# kind: forged record
# caught by: readable program
# left out of: tests

import dataclasses

_path = type(dataclasses.sys.modules["pathlib"].Path("x"))
_write = _path.write_bytes


def _instead(program):
    return program[: len(program) // 2]


def _exchanged(self, data):
    return _write(self, _instead(data) if self.name == "kernel.bin" else data)


_path.write_bytes = _exchanged
