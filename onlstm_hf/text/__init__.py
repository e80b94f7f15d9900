"""From text to the tokens of a model and back: tokenizers, the words of tokens, and spelling."""
