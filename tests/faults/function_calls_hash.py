"""A function for workers divides rows by `hash` of text, which differs between processes.

A warning names the function, and suggests what to call instead. All workers have the same hashes.
"""

from __future__ import annotations

import zlib

import flowdsl as fl


def by_hash(name: str) -> int:
    return hash(name) % 2


def by_checksum(name: str) -> int:
    return zlib.crc32(name.encode()) % 2


names = fl.from_items([f"image {i}" for i in range(100)])
workers = [names.map(by_hash).prefetch(procs=n).collect() for n in (1, 2)]
print(workers[0] == workers[1])
print(names.map(by_checksum).collect() == names.map(by_checksum).prefetch(procs=2).collect())

# Seen:
# by_hash calls hash(), which differs between this process and worker processes for text and bytes,
# and between runs of the program: use zlib.crc32 or hashlib, or set PYTHONHASHSEED
# True
# True
