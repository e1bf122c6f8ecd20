"""Apache Kafka's command lines: `klamm kafka-topics --bootstrap-server ... --list` and its kin, for existing runbooks.

Flags, standard output and exit codes are those of Kafka 4.3.1's scripts. Four things differ: an error is one sentence
on standard error, without a Java stack trace or the whole usage; `--help` is in our words; lists that Kafka prints in
the order of a hash table are sorted; and options that Kafka dropped long ago say what to use instead.
"""
