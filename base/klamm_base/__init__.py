"""The ground that every part stands on: properties, config definitions, errors, security, files."""
