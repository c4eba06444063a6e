"""What the benchmarks share. The commands are the modules beside this folder."""
