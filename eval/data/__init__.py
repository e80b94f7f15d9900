"""Evaluation data: columns of data sets, treebanks, and minimal pairs."""
