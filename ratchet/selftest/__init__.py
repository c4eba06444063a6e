"""The judge, tried on kernels and attacks whose answer is known: `./ratchet.sh selftest`."""
