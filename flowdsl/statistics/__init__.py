"""What a run has done, as figures, and how figures are spelled."""
