"""Reconciliation: the lines of source files against the documents of a target, by id, each read by itself."""
