"""What every part shares: properties, config definitions, errors, clock."""
