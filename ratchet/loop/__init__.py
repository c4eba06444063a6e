"""One turn of the ratchet: ledger, history, decision."""
