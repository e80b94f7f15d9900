"""What all recurrences share: the operator, the contract of its fast paths, and how these are chosen and checked."""
