"""`klamm mirror cutover`, `failover` and `failback`: what their steps do at both clusters."""
