"""Propositional logic and ListOps: formal languages whose meaning depends on structure."""
