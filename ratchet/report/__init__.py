"""What people see of a ledger: one HTML page, charts as files, the page of a search under way."""
