"""How fast a corpus is parsed, and what a large one would take."""
