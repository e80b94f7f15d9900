"""The pairs of formulas that classifiers are trained on."""
