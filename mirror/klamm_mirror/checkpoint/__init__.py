"""MirrorCheckpoint: tells the target where the source's consumer groups are."""
