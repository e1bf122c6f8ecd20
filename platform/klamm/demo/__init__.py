"""The demonstration: a growing log file through connectors and topic into a second file, checked at the end."""
