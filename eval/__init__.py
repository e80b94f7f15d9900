"""Evaluation scripts, run from a checkout, and metrics for `evaluate.load`."""
