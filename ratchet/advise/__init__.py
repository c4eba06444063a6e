"""What to change next, and the change itself: patterns in a kernel's syntax tree, weighed by its modelled run. Pure."""
