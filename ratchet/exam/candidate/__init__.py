"""Untrusted kernel files: contract, jailed worker, frozen problem."""
