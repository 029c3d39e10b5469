"""Making elements: what a worker, or the consumer's thread, runs on the positions it is given."""
