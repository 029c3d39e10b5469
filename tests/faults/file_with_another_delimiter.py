"""The cells of a CSV file are separated by semicolons, as in exports of many countries.

If the columns are declared, the error names the delimiter that would give them.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import flowdsl as fl


class Row(NamedTuple):
    name: str
    price: float


Path("rows.csv").write_text("name;price\none;1.5\n")
try:
    fl.from_csv("rows.csv", Row)
except fl.FlowError as error:
    print(error)
print(fl.from_csv("rows.csv", Row, delimiter=";").collect())

# Seen:
# from_csv: ...rows.csv' has the columns ['name;price'], but Row(name: str, price: float) is
# declared; its cells are separated by ';': delimiter=';'
# [Row(name='one', price=1.5)]
