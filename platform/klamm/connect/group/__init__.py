"""Connect's worker group: its bytes (`protocol`), who runs what (`assignor`), and a worker's place in it (`membership`)."""
