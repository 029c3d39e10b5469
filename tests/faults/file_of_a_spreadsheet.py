"""A spreadsheet, or another file that is not text, is read as CSV.

The error says what the file is. No bytes are mistaken for cells.
"""

from __future__ import annotations

import zipfile

import flowdsl as fl

with zipfile.ZipFile("table.xlsx", "w") as book:
    book.writestr("xl/workbook.xml", "<workbook/>")
fl.from_csv("table.xlsx")

# Seen:
# flowdsl.errors.SourceError: from_csv: ...table.xlsx' is not text but a zip archive, as .xlsx, .ods
# and .npz files are; read it with the function of its format, or export it as text
