"""`parse()`: sentences in, induced trees out; and the pipeline of Transformers around it."""
