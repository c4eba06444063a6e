"""Walls around a child process: namespaces, Landlock, seccomp, limits. Linux only, standard library only."""
