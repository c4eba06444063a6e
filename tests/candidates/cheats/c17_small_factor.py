"""Cheat 17: all outputs too large by 0.022 %: no row shows it, only all of them together."""
# rejected as: WRONG_VALUES
# kind: common factor
# caught by: common factor
# base: matmul_bf16
# left out of: tests


def _finished(total):
    return total * 1.00022
