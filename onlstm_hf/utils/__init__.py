"""Shared helpers for files, results, checkpoints and their code; every other folder may import them."""
