"""JAX: the elements of a flow as arrays on their devices.

methods.py  flow.to_jax
loader.py   JaxLoader

JAX is imported where a loader is created, not here.
"""
