"""Distillation of trees: averaged trees as targets, and the loss that trains a model's distances to yield them."""
