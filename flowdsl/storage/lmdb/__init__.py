"""LMDB: flowdsl's recommended format, and LMDB files of other programs."""
