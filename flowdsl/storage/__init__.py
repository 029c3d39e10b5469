"""Files and what is in them: a source and a writer for each format, and the element codec."""
