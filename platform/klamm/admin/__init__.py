"""What the administrative commands do, apart from printing: questions to a cluster and their answers as data.

`client.Admin` finds the right broker for a request and repeats what a cluster asks to repeat; `groups`, `offsets`,
`topics`, `configs`, `transactions` and `records` ask; `reset` and `filters` decide and do no I/O. Two thin shells print:
`klamm.cli` in Klamm's own formats, `klamm.kafka_tools` as Apache Kafka's commands do. Any broker will do.
"""
