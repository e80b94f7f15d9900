"""The training loop that all tasks share: recipe, updates, checkpoints, log."""
