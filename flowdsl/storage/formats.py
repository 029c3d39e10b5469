"""The table of storage formats: the readers, the writer and the extra of each.

``import flowdsl`` must not import a reader before its first use. A lazy name for each reader, a
method for each writer, an extra in ``pyproject.toml`` and a row in ``docs/storage.md`` drift apart
if each is kept by hand. So the lazy names come from this table, and a test compares everything else
with it.
"""

from __future__ import annotations

import attrs


@attrs.frozen
class StorageFormat:
    """A format: its public functions, and where they are."""

    name: str
    """The name in ``docs/storage.md``."""
    reader: str
    """The function in ``flowdsl`` that reads it."""
    module: str
    """The module of the reader, below ``flowdsl.storage``."""
    writer: str | None = None
    """The method of ``Flow`` that writes it."""
    extra: str | None = None
    """What ``pip install "flowdsl[...]"`` needs for it, if anything."""


FORMATS = (
    StorageFormat("LMDB", "from_lmdb", "lmdb.reading", "write_lmdb"),
    StorageFormat("LMDB of other programs", "from_lmdb_raw", "lmdb.raw"),
    StorageFormat("LMDB of tensorpack", "from_tensorpack_lmdb", "lmdb.tensorpack"),
    StorageFormat("LMDB of Caffe", "from_caffe_lmdb", "lmdb.caffe", extra="caffe"),
    StorageFormat("TFRecord", "from_tfrecord", "tfrecord.records", "write_tfrecord", "tfrecord"),
    StorageFormat(
        "ArrayRecord", "from_arrayrecord", "arrayrecord", "write_arrayrecord", "arrayrecord"
    ),
    StorageFormat("WebDataset tar", "from_webdataset", "webdataset.samples", "write_webdataset"),
    StorageFormat("Parquet", "from_parquet", "parquet.reading", "write_parquet", "parquet"),
    StorageFormat("HDF5", "from_hdf5", "arrays.hdf5", "write_hdf5", "hdf5"),
    StorageFormat("NPZ", "from_npz", "arrays.npz", "write_npz"),
    StorageFormat("NPY", "from_npy", "arrays.npy"),
    StorageFormat("CSV", "from_csv", "csv.reading", "write_csv"),
    StorageFormat("text", "from_text", "text.lines", "write_text"),
    StorageFormat("SVMLight", "from_svmlight", "text.svmlight", extra="svmlight"),
    StorageFormat("images", "from_images", "images.files", extra="images"),
)
