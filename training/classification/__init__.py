"""Classifiers: batches of sequences or of pairs, the task, and groups of the recipe."""
