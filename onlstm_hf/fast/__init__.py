"""Recurrences and layers that know nothing of a model: the equations, and fast paths tested against them."""
