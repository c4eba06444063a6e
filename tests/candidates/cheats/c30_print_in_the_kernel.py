"""Cheat 30: prints from inside of the kernel."""
# rejected as: CANNOT_VERIFY, HOST_CALLBACK, LOWERING_FAILED, SCHEDULE_UNKNOWN, COMPILE_FAILED
# kind: host callback
# caught by: tokens, known operations, one program, no host, known control flow, memory limits
# left out of: tests

_honest_block = _block


def _block(q_ref, k_ref, v_ref, o_ref):
    pl.debug_print("RESULT: score=99999 {}", pl.program_id(0))
    _honest_block(q_ref, k_ref, v_ref, o_ref)
