"""Probabilistic grammar that is trained on text, optionally guided by the trees of other parsers."""
