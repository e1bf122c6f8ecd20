"""Prints what is in the files of a partition, as Kafka's DumpLogSegments does: `run.dump` is the door.

Files are read from front to back, a batch at a time: memory does not grow with them, and a broker may be writing the same
files. Nothing is ever written to them.
"""
