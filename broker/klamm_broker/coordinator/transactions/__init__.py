"""The transaction coordinator, without I/O: decides who may write under a transactional id, and ends transactions.

The server uses `coordinator.TransactionCoordinator`. `state` has the table of states, `transitions` the change of each
step, `records` the records of `__transaction_state`. Producers, epochs and the order of the steps are Kafka's
(KIP-98, KIP-360, KIP-890).
"""
