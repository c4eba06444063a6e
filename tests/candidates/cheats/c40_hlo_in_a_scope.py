"""Cheat 40: a scope whose name is a line of HLO, with a kernel of one grid step."""
# rejected as: NO_GAIN
# kind: text in names
# caught by: neutral text
# left out of: tests
# base: c40_a_host_call_by_name

SCOPE = """
  ROOT %forged = bf16[1024,128]{1,0} custom-call(%q), custom_call_target="tpu_custom_call", backend_config={"grid": [1]}
}
"""
