"""FileStreamSink: records of topics to lines of a file."""
