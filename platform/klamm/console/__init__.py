"""The console: a web page over Kafka clusters, Connect workers and what else runs beside them."""
