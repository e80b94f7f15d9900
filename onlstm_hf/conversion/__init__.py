"""Weights and files of the authors' code, read without running what is in them."""
