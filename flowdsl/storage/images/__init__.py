"""Images: files, and their bytes, decoded no larger than is asked for."""
