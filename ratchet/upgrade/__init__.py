"""The same kernels under two versions of JAX and libtpu."""
