"""Planning: from the chain as written to the stages that run."""
