"""Cheat 41: its record says that it takes one input, and the program beside it takes three."""
# rejected as: PROBLEM_CHANGED
# kind: forged record
# caught by: frozen problem
# base: c41_record_of_a_status
# left out of: tests


def _instead(record):
    return record | {"inputs": record["inputs"][:1]}
