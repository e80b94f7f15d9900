"""Model cards, written from results."""
