"""SparkSource: what Spark can read, through a job, into a topic."""
