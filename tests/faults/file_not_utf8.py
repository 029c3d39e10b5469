"""A text file is in another encoding.

The error names the line and the byte, and suggests a correction. No character is guessed.
"""

from __future__ import annotations

from pathlib import Path

import flowdsl as fl

Path("names.txt").write_bytes("Anna\nZoë\nBob\n".encode("latin-1"))
print(fl.from_text("names.txt", encoding="latin-1").collect())
fl.from_text("names.txt").collect()

# Seen:
# ['Anna', 'Zoë', 'Bob']
# flowdsl.errors.ElementError: from_text('names.txt') failed on element 1 (row 1 of
# from_text('names.txt')): SourceError("'names.txt', line 2 (byte 5): byte 7 is not utf-8: invalid
# continuation byte; pass encoding= if the file has another one")
