"""The write-ahead log: batches before they are sent, so that a kill of the agent repeats no line. Decision 051."""
