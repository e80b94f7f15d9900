"""What all classifiers share: batches of sequences or of pairs of them, the task, and groups of the recipe."""
