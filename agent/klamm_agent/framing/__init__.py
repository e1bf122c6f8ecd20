"""Bytes of a file as events: line ends, encodings, containers, multiline. Pure."""
