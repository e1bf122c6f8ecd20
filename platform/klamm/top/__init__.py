"""`klamm top`: rates, lag and tasks of a cluster, on a terminal."""
