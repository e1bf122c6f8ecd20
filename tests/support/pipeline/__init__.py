"""The log pipeline under faults: `round` breaks it and counts, `memory` watches its stages, `soak` does it at length."""
