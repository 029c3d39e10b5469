"""Line-based files: text and SVMlight.

``lines``     from_text and write_text
``svmlight``  from_svmlight
``blocks``    rows by index, for these and for CSV; the base of their sources
``indexing``  the index of a file: where its rows begin
``decoding``  bytes to text, line by line
``syntax``    where rows end: newlines outside of quoted cells
``opening``   files that may be compressed
"""
