"""Cheat 5: the norm of a gradient is never below what it is clipped to: right for every gradient of a usual size."""
# base: clip_by_norm
# rejected as: WRONG_VALUES
# kind: a threshold that is never met
# caught by: small inputs


def _scale(norm):
    return 1.0 / norm
