"""Quotas: how fast clients may be, and how long one that was faster has to wait. Pure; time is passed in."""
