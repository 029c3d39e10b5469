"""An LMDB store of another program is read by `from_lmdb`, which reads stores of `write_lmdb`.

It is refused, and the error names the source that reads keys and values of any store.
"""

from __future__ import annotations

import lmdb

import flowdsl as fl

with lmdb.open("store", map_size=1 << 20) as store, store.begin(write=True) as transaction:
    transaction.put(b"key", b"value")
try:
    fl.from_lmdb("store")
except fl.SourceError as error:
    print(error)
print(fl.from_lmdb_raw("store").collect())

# Seen:
# from_lmdb: 'store/data.mdb' is cut short, or is not a file that flow.write_lmdb(path) made: it has
# 12288 bytes and needs ...; fl.from_tensorpack_lmdb(path) reads a file of tensorpack,
# fl.from_lmdb_raw(path) a store of any other program
# [(b'key', b'value')]
