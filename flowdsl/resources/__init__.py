"""What a run uses of its machine: cores, kinds of worker, and waits that can be cancelled."""
