"""The requests to a fork server, and its answers.

Only the consumer's process sends requests, through a socket, in messages that begin with a number:

=================  =====================================  ==========================================
request            additional content                     answer
=================  =====================================  ==========================================
0: fork a worker   the names of modules to import first;  its process id, and a descriptor of the
                   as descriptors its link, the folder    process; or an error number, negated; or
                   to work in, and where it prints        ``UNFIT - n``
n: a process id                                           how that process ended, as ``wait`` says
=================  =====================================  ==========================================
"""

from __future__ import annotations

import struct

NUMBER = struct.Struct("<q")
LARGEST = 1 << 16
"""The maximum size of a request in bytes."""
FORK = 0
NOT_KNOWN = 1 << 32
"""The answer for a process that has not ended, or is unknown."""
FDS = 4
"""Descriptors sent with a request for a worker: link, folder, standard output and error."""
UNFIT = -(1 << 32)
"""The answer if an import has made this process unfit for being forked, less the number of modules
that were requested before it."""
