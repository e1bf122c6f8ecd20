"""A group of Connect workers under faults: load, faults, and a judge of what the load left behind."""
