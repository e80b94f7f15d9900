"""Propositional logic (Bowman et al. 2015): formulas, their relations, pairs of them, and scores of predictions."""
