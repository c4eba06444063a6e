"""The fast route of compiling a large program. What it gives is identical to the plain one's, ``compile.py``."""
