"""Sources and sinks on disk: one module or package for each file format.

A format is a ``from_...`` source and a ``write_...`` sink; ``formats`` is the table of all. The
modules that formats share:

``paths``          file names, patterns and lists      ``writing``        atomic writes of files
``byte_files``     random access to a file's bytes     ``temp_dirs``      unfinished files
``urls``           files read over the network         ``progress``       progress bars
``fetching``       local copies of remote files        ``codec``          encodes any element
``index``          the byte offset of each row         ``schema``         declared elements
``read_ahead``     rows read in order                  ``libraries``      optional dependencies
``compression``    gzip and zlib, read anywhere        ``file_source``    sources of files
``write_methods``  the ``write_...`` methods of Flow
"""
