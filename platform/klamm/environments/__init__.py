"""Plugin environments: sets of packages that are resolved once, locked, and laid over the worker's runtime.

`store` is the door; `docs/decisions` (plugin environments) says why it is built like this. Nothing here runs in an
event loop, and nothing imports a plugin but `inspect`, which runs in a process of its own.
"""
