"""Kernels, made from the ratcheted files in ``kernels/`` by ``./ratchet.sh export``. Not edited here."""
