"""Connect: workers, their REST API, and the processes in which connectors and tasks run."""
