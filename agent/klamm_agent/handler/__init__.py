"""The engine of `klamm.logging`: a queue, a thread that delivers, and a spool while the broker is away."""
