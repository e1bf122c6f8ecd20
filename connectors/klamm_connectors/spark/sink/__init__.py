"""SparkSink: topics through a Spark job into what Spark can write."""
