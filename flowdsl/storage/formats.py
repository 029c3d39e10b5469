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
    """The extra that it needs, as in ``pip install "flowdsl[hdf5]"``; None if it needs none."""
    suffixes: tuple[str, ...] = ()
    """The usual suffixes of its files; empty if another format of the table has the same ones."""


FORMATS = (
    StorageFormat(
        "LMDB", "from_lmdb", "lmdb.reading", "write_lmdb", suffixes=(".lmdb", ".mdb", "/")
    ),
    StorageFormat("LMDB of other programs", "from_lmdb_raw", "lmdb.raw"),
    StorageFormat("LMDB of tensorpack", "from_tensorpack_lmdb", "lmdb.tensorpack"),
    StorageFormat("LMDB of Caffe", "from_caffe_lmdb", "lmdb.caffe", extra="caffe"),
    StorageFormat(
        "TFRecord",
        "from_tfrecord",
        "tfrecord.records",
        "write_tfrecord",
        "tfrecord",
        (".tfrecord", ".tfrecords"),
    ),
    StorageFormat(
        "ArrayRecord",
        "from_arrayrecord",
        "arrayrecord",
        "write_arrayrecord",
        "arrayrecord",
        (".arrayrecord", ".array_record"),
    ),
    StorageFormat(
        "WebDataset tar",
        "from_webdataset",
        "webdataset.samples",
        "write_webdataset",
        suffixes=(".tar",),
    ),
    StorageFormat(
        "Parquet", "from_parquet", "parquet.reading", "write_parquet", "parquet", (".parquet",)
    ),
    StorageFormat("HDF5", "from_hdf5", "arrays.hdf5", "write_hdf5", "hdf5", (".h5", ".hdf5")),
    StorageFormat("NPZ", "from_npz", "arrays.npz", "write_npz", suffixes=(".npz",)),
    StorageFormat("NPY", "from_npy", "arrays.npy", suffixes=(".npy",)),
    StorageFormat("CSV", "from_csv", "csv.reading", "write_csv", suffixes=(".csv", ".csv.gz")),
    StorageFormat("text", "from_text", "text.lines", "write_text", suffixes=(".txt", ".txt.gz")),
    StorageFormat(
        "SVMLight",
        "from_svmlight",
        "text.svmlight",
        extra="svmlight",
        suffixes=(".svm", ".svmlight", ".libsvm", ".svm.gz"),
    ),
    StorageFormat(
        "images",
        "from_images",
        "images.files",
        extra="images",
        suffixes=(".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"),
    ),
)


def format_of(path: str) -> StorageFormat | None:
    """Return the format that has the suffix of this path; None if there is none.

    >>> found = format_of("data/train.parquet")
    >>> found and found.reader
    'from_parquet'
    """
    ends = ((suffix, one) for one in FORMATS for suffix in one.suffixes)
    return next((one for suffix, one in ends if path.lower().endswith(suffix)), None)
