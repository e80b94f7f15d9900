"""Adapting a language model to the text that it is scored on."""
