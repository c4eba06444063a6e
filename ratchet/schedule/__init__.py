"""The schedule machine: a compiled program in, its modelled timeline out."""
