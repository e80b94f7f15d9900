"""Classifiers of sequences or pairs: batches, task, recipe, and the data of logic and ListOps."""
