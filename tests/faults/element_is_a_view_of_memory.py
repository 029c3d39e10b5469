"""An item is a `memoryview`, which belongs to the memory of the program.

It cannot be sent to a worker. The error names the row, and suggests a correction.
"""

from __future__ import annotations

import flowdsl as fl

data = b"abcdef"
views = fl.from_items([memoryview(data)[:3], memoryview(data)[3:]])
print(views.map(bytes).collect())
views.map(len).prefetch(procs=1).collect()

# Seen:
# [b'abc', b'def']
# flowdsl.errors.ElementError: from_items(2 items) failed on element 0 (row 0 of from_items(2
# items)): TypeError('cannot pickle a memoryview; bytes(view) makes a copy that can be sent'); the
# element was <memory at ...>
