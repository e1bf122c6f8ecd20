"""Records on their way to the brokers: batches, memory bound, partitions, the spool on disk."""
