"""Storage formats: a source and a writer for each, and the codec of elements."""
