"""Keeps records from going in circles: origins of batches, marks, and the check at the start."""
