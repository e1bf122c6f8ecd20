"""The service layer: everything that the REST API can ask of a worker, in Kafka's terms. It knows no HTTP."""
