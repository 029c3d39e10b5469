"""The operators, one family per module: each node class is next to the method that adds it."""
