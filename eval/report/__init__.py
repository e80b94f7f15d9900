"""Tables and sections of RESULTS.md."""
