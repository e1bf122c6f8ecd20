"""Keys and values of records as people and scripts read and write them: `klamm consume` and `produce`."""
