"""The disk spool: record batches that wait for a broker, in Kafka's segment format with checksums."""
