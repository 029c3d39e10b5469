"""A line of a CSV file has too few cells.

The error names the file and the line. No cell is invented. With `on_error="skip"` the other rows
are delivered.
"""

from __future__ import annotations

from pathlib import Path

import flowdsl as fl

Path("words.csv").write_text("text,count\nto,2\nbe\nor,1\n")
words = fl.from_csv("words.csv")
print(words.prefetch(on_error="skip").collect())
words.collect()

# Seen:
# 1 element failed and was left out: from_csv('words.csv') failed on element 1 (row 1
# of from_csv('words.csv')): SourceError("'words.csv', line 3 (byte 16): the row has 1 cell, but
# there are 2 columns")
# [{'text': 'to', 'count': '2'}, {'text': 'or', 'count': '1'}]
# flowdsl.errors.ElementError: from_csv('words.csv') failed on element 1 (row 1 of
# from_csv('words.csv')): SourceError("'words.csv', line 3 (byte 16): the row has 1 cell, but there
# are 2 columns")
