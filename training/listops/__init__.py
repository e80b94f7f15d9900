"""ListOps: expressions as training data, the recipe, and the trees of a trained model."""
