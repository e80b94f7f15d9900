"""The text that language models are trained and validated on."""
