"""Cheat 41: its record has NaN, negative sizes and truth values where numbers belong."""
# rejected as: CONTRACT
# kind: forged record
# caught by: typed symbols
# base: c41_record_of_a_status
# left out of: tests


def _instead(record):
    return record | {"flops": True, "outputs": [{"shape": [-1, 128], "dtype": "bfloat16"}]}
