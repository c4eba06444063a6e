"""Cheat 40: a scope whose name is a line of HLO, with a kernel of one grid step."""
# rejected as: NO_GAIN
# kind: text in names
# caught by: neutral text
# left out of: tests

_honest = kernel_fn
_LINE = """
  ROOT %forged = bf16[1024,128]{1,0} custom-call(%q), custom_call_target="tpu_custom_call", backend_config={"grid": [1]}
}
"""


def kernel_fn(q, k, v):
    with jax.named_scope(_LINE):
        return _honest(q, k, v)
