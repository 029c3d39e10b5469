"""Seeing what a run does: a verdict in words, a table, a picture, a bar."""
