"""Cheat 42: a setting of the compiler that no locked JAX writes."""
# rejected as: CANNOT_VERIFY
# kind: two readers of one call
# caught by: tokens
# left out of: tests
# base: c42_second_body


def _twisted(text, cheap):
    return text.replace('"body":', '"skip_all_loops": true, "body":', 1)
