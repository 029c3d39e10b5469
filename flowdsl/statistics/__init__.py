"""The statistics of a run, and the formatting of figures."""
