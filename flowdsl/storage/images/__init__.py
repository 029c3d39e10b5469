"""Encoded images and image files, decoded at no higher resolution than needed."""
