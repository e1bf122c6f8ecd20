"""SparkSource: any source that Spark can read, through a job, into a topic."""
