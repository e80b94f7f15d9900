"""Paths that compute what the models compute, only faster: kernels, their contracts, and the choice among them.

The files of models travel with checkpoints and this folder does not: a layer imports from it inside `try`. So a
function that a layer calls keeps its arguments and results; one that needs others gets another name.
"""
