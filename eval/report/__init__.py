"""Tables of RESULTS.md, and those that the scripts print."""
