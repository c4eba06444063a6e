"""Cheat 44: raises an exception that cannot be printed."""
# rejected as: IMPORT_FAILED
# kind: raises anything
# caught by: complete record
# left out of: tests


class Silent(BaseException):
    def __init__(self):
        self.args = (self,)

    def __str__(self):
        raise Silent


raise Silent
