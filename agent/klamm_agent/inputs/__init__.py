"""Inputs that are no files: syslog, the journal, standard input. Each is a `Reader` (see `events`), opened by `opening.open_reader`."""
