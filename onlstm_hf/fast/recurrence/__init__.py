"""Shared parts of all recurrences: the operator, and the contract, choice and checks of its fast paths."""
