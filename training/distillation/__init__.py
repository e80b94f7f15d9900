"""Distillation of trees: averaged trees of a text, and the loss by which a model's distances are drawn to them."""
