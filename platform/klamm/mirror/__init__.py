"""`klamm mirror`: MirrorMaker's dedicated mode, one Connect worker for each flow between two clusters."""
