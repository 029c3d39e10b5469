"""Reports on a run: a verdict as text, tables, a picture, and a progress bar."""
