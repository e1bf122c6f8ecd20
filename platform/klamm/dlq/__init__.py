"""Dead letter topics from outside: reading dead letters, and sending them to the topics they were meant for."""
