"""The internal topics of Connect: config, offset and status records, and the log that holds them."""
