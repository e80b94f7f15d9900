"""Shared parts of all recurrences: the operator, the contract of its fast paths, their choice and their checks."""
