"""The protocols by which models are measured: perplexity, scores of trees, and probabilities of sentences."""
