"""The commands that are more than a call of a room: their options in, what they print and their exit code out."""
