"""A program exits while a daemon thread iterates over a flow.

The program exits without waiting and without a traceback, and its workers end.
"""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import threading, time
import flowdsl as fl

begun = threading.Event()

def iterate():
    for _ in fl.from_range(10**6).map(abs).prefetch(procs=1):
        begun.set()

threading.Thread(target=iterate, daemon=True).start()
begun.wait()
print("the end")
"""
done = subprocess.run([sys.executable, "-c", PROGRAM], stdout=1, stderr=1)
print("status", done.returncode)

# Seen:
# the end
# status 0
