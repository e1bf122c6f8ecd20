"""Syslog: sockets, framing on the wire, and messages as texts, times and fields."""
