"""Benches of a flow: what each operator costs, in ratios to a fixed reference workload.

``reference``  the reference workload, and a clock that does not count waiting for a core
``sampling``   the costs of a flow in this process: one sample
``in_thread``  the worker whose transport is measured
``costs``      samples of several processes, and the file that keeps them
``comparing``  two sets of costs: what has become slower

The speed and the load of the machine change a time by half. They change the time of the reference
by about as much, because it runs in short turns between the turns of the flow.
"""
