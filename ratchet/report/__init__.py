"""What people see of a ledger: one HTML page, charts as files, the page of a search under way."""

PLOTS = ("trajectory", "roofline", "units", "vmem", "fidelity")
"""The charts that can be files: by name, so that the command line is read without the library that draws them."""
