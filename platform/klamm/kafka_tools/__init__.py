"""Apache Kafka's command lines: `klamm kafka-topics --bootstrap-server ... --list` and its kin, for existing runbooks.

Same flags, same text on standard output, same exit codes as Kafka 4.3.1's scripts. What differs: an error is one sentence
on standard error without a Java stack trace or the whole usage behind it, `--help` is in our words, lists that Kafka prints
in the order of a hash table are sorted, and options that Kafka dropped long ago say what to use instead.
"""
