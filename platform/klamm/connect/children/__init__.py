"""The worker's side of the processes that run plugin code: starts and watches them."""
