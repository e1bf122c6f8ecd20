"""SparkSink: topics through a Spark job into any target that Spark can write."""
