"""Evaluation protocols: perplexity, scores of trees, and probabilities of sentences."""
