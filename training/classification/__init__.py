"""Classifiers: batches of sequences or of pairs, the task, its recipe, and the data of logic and ListOps."""
