"""Runs a plan, in this process or in workers that share memory with it."""
