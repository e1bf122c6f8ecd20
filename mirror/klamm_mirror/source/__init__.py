"""MirrorSource: copies topics of one cluster to another."""
