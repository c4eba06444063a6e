"""Timing on an attached device: paired launches, and what may be concluded from them."""
