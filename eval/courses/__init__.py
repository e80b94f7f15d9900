"""How perplexity and the trees move while a model trains."""
