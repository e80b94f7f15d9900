"""What every training run does, whatever it learns: recipe, updates, checkpoints, log."""
