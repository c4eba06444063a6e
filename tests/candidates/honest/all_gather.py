"""Honest: every chip collects the rows of all chips."""
# base: ppermute

KERNEL_NAME = "all_gather"
PROBLEM_DESCRIPTION = "all-gather of float32[256, 256] over four chips"


def _kernel(x, o, sent, arrived):
    me, others = _everyone()
    o[pl.ds(me * N, N)] = x[...]
    _meet(others)
    copies = [_send(x, o.at[pl.ds(me * N, N)], sent.at[k], arrived.at[k], other) for k, other in enumerate(others)]
    for copy in copies:
        copy.start()
    for copy in copies:
        copy.wait()


def kernel_fn(x):
    def gather(x):
        return _shard(x, rows=CHIPS * N)

    return jax.shard_map(gather, in_specs=P("chip"), out_specs=P(), check_vma=False)(x)


def reference_fn(x):
    return x
