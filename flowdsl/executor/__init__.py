"""Computing elements: the code that a worker, or the consumer's thread, runs on its positions."""
