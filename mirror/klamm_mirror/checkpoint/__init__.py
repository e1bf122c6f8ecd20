"""MirrorCheckpoint: writes the positions of the source's consumer groups to the target."""
