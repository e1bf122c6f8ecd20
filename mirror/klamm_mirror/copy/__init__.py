"""The way of batches from source to target: fetch, check, change, limit, produce."""
