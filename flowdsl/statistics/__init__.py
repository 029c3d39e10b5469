"""The statistics of a run, and how figures are formatted."""
