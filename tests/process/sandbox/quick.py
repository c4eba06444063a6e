"""The module of a child that does what ``hostile`` does, without the libraries whose import takes a second."""

from ratchet.process.sandbox.child import serve
from tests.process.sandbox.hostile import handle

if __name__ == "__main__":
    serve(handle)
