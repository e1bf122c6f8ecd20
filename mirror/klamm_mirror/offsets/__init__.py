"""The mapping from source to target offsets: offset syncs, segments, and translation with them."""
