"""Cheat 48: declares a mesh of devices that share its work."""
# rejected as: PROBLEM_CHANGED
# kind: measured: mesh
# caught by: frozen problem
# base: cpu_attention
# on: cpu
# left out of: tests


def get_tiling_meta():
    return {"mesh": {"chip": 4}, "input_shardings": [["chip"], [], []]}
