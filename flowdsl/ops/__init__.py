"""The operators, a family a file: each node beside the method that chains it."""
