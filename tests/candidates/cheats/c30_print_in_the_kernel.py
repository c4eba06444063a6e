"""Cheat 30: prints from inside of the kernel."""
# rejected as: NO_GAIN
# kind: host callback
# caught by: all of the program
# left out of: tests

_honest_block = _block


def _block(q_ref, k_ref, v_ref, o_ref):
    pl.debug_print("RESULT: score=99999 {}", pl.program_id(0))
    _honest_block(q_ref, k_ref, v_ref, o_ref)
