"""Elements: the values that flow, their specs, and their batches.

structure.py     elements and their components, nested in tuples, dicts and records
rebuilding.py    records with other components, made without their constructor
read_only.py     elements that several readers share, and none can change
arrays.py        the values that count as arrays, and their dtypes
flattening.py    components in one order, for consumers without names
hints.py         the annotations of element classes, generic ones included
specs.py         specs: the structure, dtypes and shapes of elements, known in advance
stacking.py      rows to a batch, and a batch to rows
preallocated.py  a batch whose large arrays are filled as rows arrive
batch_specs.py   the spec of a batch, from the spec of its rows
batch_types.pyi  the type of a batch, for type checkers
"""
