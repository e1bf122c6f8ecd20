"""The state directory: acknowledged positions, gaps, and counts of what rules left out."""
