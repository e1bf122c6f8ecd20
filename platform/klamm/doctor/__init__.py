"""`klamm doctor`: is this machine, these settings and these servers fit, and an archive for a support ticket."""
