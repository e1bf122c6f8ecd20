"""Inputs that are no files. Each is a `Reader` (see `events`), opened by `opening.open_reader`."""
