"""Random numbers that depend on a seed and a position alone, and the permutations made of them."""
