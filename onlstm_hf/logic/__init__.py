"""Formal languages whose meaning depends on structure: propositional logic and ListOps, with their scores."""
