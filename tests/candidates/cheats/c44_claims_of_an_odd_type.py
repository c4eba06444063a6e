"""Cheat 44: claims that are a mapping with methods of its own."""
# rejected as: IMPORT_FAILED
# kind: odd claims
# caught by: contained exceptions
# left out of: tests


class Claims(dict):
    def get(self, key, default=None):
        return [4, 5] if key == "grid" else default

    def items(self):
        raise SystemExit(0)


def get_tiling_meta():
    return Claims(grid=object())
