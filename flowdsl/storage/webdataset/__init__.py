"""WebDataset: samples of files in a tar."""
