"""Constituency trees: built from distances or brackets, read from treebanks, drawn, compared and averaged."""
