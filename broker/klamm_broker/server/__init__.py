"""The broker process: configuration, event loop, connections, start and stop."""
