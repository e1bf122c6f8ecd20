"""The transaction coordinator, without I/O: who may write under a transactional id, and how its transactions end.

`coordinator.TransactionCoordinator` is what the server uses; `state` has the table of states, `transitions` what each
step changes, `log` the records of `__transaction_state`. Producers, epochs and the order of the steps are Kafka's
(KIP-98, KIP-360, KIP-890).
"""
