"""The administrative commands without their printing: questions to a cluster, and the answers as data.

`client.Admin` finds the right broker for a request, and repeats a request where the cluster asks for that. `groups`,
`offsets`, `topics`, `configs`, `transactions` and `records` ask; `reset` and `filters` decide and do no I/O. Two thin
shells print: `klamm.cli` in Klamm's own formats, `klamm.kafka_tools` as Apache Kafka's commands do. Any Kafka broker
answers them.
"""
