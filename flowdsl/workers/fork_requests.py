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
"""The number of descriptors sent with a request for a worker: its link, its working folder,
standard output and standard error."""
UNFIT = -(1 << 32)
"""The answer if the import of a module has made this process unfit to be forked, minus the number
of requested modules before that one."""
