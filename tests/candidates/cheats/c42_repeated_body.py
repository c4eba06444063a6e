"""Cheat 42: the key of the body is there twice, and readers differ in which one counts."""
# rejected as: CANNOT_VERIFY
# kind: two readers of one call
# caught by: readable program
# left out of: tests
# base: c42_second_body


def _twisted(text, cheap):
    return text.replace('"body":', '"body": "' + cheap + '", "body":', 1)
