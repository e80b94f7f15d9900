"""Tokenizers, sentence splitting, and the alignment of tokens with words."""
