"""Stored rows: a format is a reader and a writer, in a file or a folder of its name.

What formats share stands beside them:

``paths``       names, patterns and lists of files     ``writing``   it appears when complete
``byte_files``  a file's bytes at an offset, anywhere  ``hidden``    where it lies till then
``urls``        files elsewhere                        ``bars``      how far it is
``fetching``    copies of those                        ``codec``     any element as bytes
``index``       where each row begins                  ``declared``  an element that is declared
``ahead``       rows that are read in order            ``libraries`` what is not installed
``storing``     the methods of a flow
"""
