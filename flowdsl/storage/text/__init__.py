"""Files of lines: text, and SVMLight."""
