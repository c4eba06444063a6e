"""``python -m ratchet``: what ``./ratchet.sh`` calls."""

import sys

from ratchet.starting import starting

with starting():
    from ratchet.cli import main

if __name__ == "__main__":
    sys.exit(main())
