"""The module of a child that does what ``hostile`` does, without the libraries whose import takes a second."""

from ratchet.child import serve
from tests.jail.hostile import handle

if __name__ == "__main__":
    serve(handle)
