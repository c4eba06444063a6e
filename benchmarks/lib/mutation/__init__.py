"""Mutation testing: small faults put into the judge's sources, to see whether a test notices."""
