"""From the chain that was written to the stages that run."""
