"""MirrorHeartbeat: shows that a flow is alive, and how far it is behind."""
