"""Reports on a run: a verdict in words, a table, a picture, and a progress bar."""
