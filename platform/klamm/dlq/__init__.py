"""Dead letter topics from outside: what is in them, and sending it where it was meant to go."""
