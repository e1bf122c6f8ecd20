"""The files that inputs name: found, tracked through rotation and truncation, opened and read."""
