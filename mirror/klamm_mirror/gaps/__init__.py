"""The ledger of what was not copied, and ways to go on behind it."""
