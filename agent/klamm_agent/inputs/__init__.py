"""Inputs that are no files: each is a `Reader` (`events`), opened by `opening.open_reader`."""
