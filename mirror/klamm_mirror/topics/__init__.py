"""Topics at the target: those that the mirror makes for mirrored topics, and its own, with their formats."""
