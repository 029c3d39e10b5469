"""CSV files: rows of text, or elements of a declared class."""
