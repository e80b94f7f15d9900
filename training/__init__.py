"""Training scripts, run from a checkout: `accelerate launch training/train_lm.py RECIPE.yaml`."""
