"""LMDB: the store that is recommended, and those of other programs."""
