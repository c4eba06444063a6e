"""Cheat 44: claims that contain themselves."""
# rejected as: CONTRACT
# kind: odd claims
# caught by: typed symbols
# left out of: tests


def get_tiling_meta():
    claims = {"grid": [8]}
    claims["all"] = [claims] * 2
    return claims
