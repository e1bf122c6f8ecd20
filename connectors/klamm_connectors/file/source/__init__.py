"""FileStreamSource: lines of a file to a topic."""
