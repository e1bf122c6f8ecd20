"""The connectors that come with Klamm, registered as a stranger's would be."""
