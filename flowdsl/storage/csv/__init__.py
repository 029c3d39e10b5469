"""CSV: rows of text, and of what a class declares."""
