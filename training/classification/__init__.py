"""Classifiers of sequences or pairs: batches, task and recipe."""
