"""The service layer: every operation of the REST API on a worker, in Kafka's terms. It knows no HTTP."""
