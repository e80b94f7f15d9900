"""Runs of one recipe that differ in their seed: their processes, their progress, their table."""
