"""A probabilistic grammar that is learned from text, and can listen to the trees of other parsers."""
