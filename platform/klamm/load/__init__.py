"""Load on a cluster, and its measure: `klamm bench`, `kafka-producer-perf-test` and its kin."""
