"""The machine's resources in a run: cores, kinds of worker, and waits that can be cancelled."""
