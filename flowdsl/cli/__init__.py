"""The command line: ``flowdsl check train.py:train``.

``main``      the commands, and the exit status of errors
``targets``   flows named on the command line: ``file.py:flow``, ``module:flow``
``checking``  check; ``first_element`` computes the first element for it
``looking``   explain, profile, measure, head
``files``     inspect, convert
``benching``  bench; ``sampling`` is the process that takes a sample for it
``printing``  what commands print

Each command is a few lines over the library. Exit status 0 is success, 1 a check or a run that
failed, 2 input that a command cannot use.
"""
