"""Executes on the CPU the very Mosaic module inside an exported TPU program, to get its values.

``run.load(tpu_program)`` parses a ``jax.export`` artefact, translates every ``tpu_custom_call`` in it to a
JAX program for the CPU and puts that in the call's place; ``Loaded.run(inputs)`` returns outputs and findings.
"""
