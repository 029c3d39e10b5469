"""The operators, one family in each file: each node is beside the method that chains it."""
