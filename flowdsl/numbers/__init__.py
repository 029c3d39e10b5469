"""Random numbers that depend only on a seed and a position, and permutations made of them."""
