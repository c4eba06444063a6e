"""The fastest blocks for the shapes of a program."""
