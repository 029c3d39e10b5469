"""Parquet: rows of tables, read by row group."""
