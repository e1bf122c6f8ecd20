"""Prints the contents of a partition's files, as Kafka's DumpLogSegments does. `run.dump` is the entry.

It reads files from front to back, a batch at a time: memory does not grow with them, and a broker may write the same
files meanwhile. It never writes to them.
"""
