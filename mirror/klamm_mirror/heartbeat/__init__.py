"""MirrorHeartbeat: shows that a flow lives, and how far it is behind."""
