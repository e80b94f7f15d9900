"""Sharing checkpoints and metrics on the Hugging Face Hub."""
