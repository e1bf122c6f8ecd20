"""Starts and watches the processes that run plugin code, from the side of the worker."""
