"""Elements: the values that flow, what is known of them in advance, and how they form batches.

structure.py     elements and their components, nested in tuples, dicts and records
arrays.py        which values count as arrays, and their dtypes
flattening.py    components in one order, for consumers without names
specs.py         what is known of elements before they exist
stacking.py      rows to a batch, and a batch to rows
preallocated.py  a batch whose large arrays are filled as rows arrive
batch_specs.py   the spec of a batch, from the spec of its rows
batch_types.pyi  the type of a batch, for type checkers
"""
