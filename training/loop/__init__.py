"""Training loop for all tasks: recipe, updates, checkpoints, log."""
