"""Evaluation data: texts, treebanks, and minimal pairs."""
