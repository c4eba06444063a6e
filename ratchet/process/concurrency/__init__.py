"""Work side by side: in threads, and as far as memory is enough."""
