"""Client telemetry (KIP-714): which metrics clients should push, and what they have pushed. Pure: time is passed in."""
