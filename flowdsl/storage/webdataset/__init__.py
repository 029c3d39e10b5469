"""WebDataset: samples of several files each, in tar files."""
