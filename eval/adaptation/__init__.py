"""Adaptation of a language model to the text that it scores."""
