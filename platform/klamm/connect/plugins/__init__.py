"""Plugins of a worker: the installed plugins, their environments, and the group's agreement on them."""
