"""agent.toml: read and checked, each table into a frozen dataclass."""
