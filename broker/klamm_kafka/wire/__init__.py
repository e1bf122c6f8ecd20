"""The wire protocol without I/O: messages, headers, record batches, compression, errors."""
