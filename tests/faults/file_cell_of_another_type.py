"""A cell of a CSV file is not a number, although a number is declared.

The error names the file, the line and the column, and shows the cell. With `on_error="skip"` the
other rows are delivered.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import flowdsl as fl


class Word(NamedTuple):
    text: str
    times: int


Path("words.csv").write_text("text,times\nto,2\nbe,two\nor,1\n")
words = fl.from_csv("words.csv", Word)
print(words.prefetch(on_error="skip").collect())
words.collect()

# Seen:
# 1 element failed and was left out: from_csv('words.csv') failed on element 1 (row 1
# of from_csv('words.csv')): SpecMismatch("'words.csv', line 3 (byte 16): column 'times': 'two' is
# not of the declared type, int")
# [Word(text='to', times=2), Word(text='or', times=1)]
# flowdsl.errors.ElementError: from_csv('words.csv') failed on element 1 (row 1 of
# from_csv('words.csv')): SpecMismatch("'words.csv', line 3 (byte 16): column 'times': 'two' is not
# of the declared type, int")
