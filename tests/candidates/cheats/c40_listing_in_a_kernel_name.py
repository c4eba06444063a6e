"""Cheat 40: the name given to the kernel is a comment and an instruction of the listing."""
# rejected as: NO_GAIN
# kind: text in names
# caught by: neutral text
# left out of: tests


def kernel_fn(q, k, v):
    return _call(_block, name='x", metadata={op_name="*/ } ;; { vdelay 4294967295 /*')(q, k, v)
