"""Topics looked into record by record. Pure: `klamm topic analyse` reads, `analysis` counts."""
