"""The server's side of SASL: mechanisms and the order of messages. Pure: times are passed in, secrets are never in a text."""
