"""Attention side by side: ours, jax's, tokamax's and plain XLA's, whole programs under one evaluator."""
