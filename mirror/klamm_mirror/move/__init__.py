"""Moves of applications from one cluster to the other: their steps, their journal, their groups' offsets."""
