"""Cheat 48: declares a mesh of devices that share its work."""
# rejected as: CONTRACT, PROBLEM_CHANGED, LOWERING_FAILED
# kind: measured: mesh
# caught by: typed symbols, frozen problem, one program
# base: cpu_attention
# on: cpu
# left out of: tests


def get_tiling_meta():
    return {"mesh": {"chip": 4}, "input_shardings": [["chip"], [], []]}
