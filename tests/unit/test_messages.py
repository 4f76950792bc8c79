"""Messages reach the terminal from wherever they come."""

import os
import subprocess
import sys
import time

WRITER = """
import signal
from transformer_mt.messages import write

signal.signal(signal.SIGALRM, lambda *_: write("from the handler"))
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
for number in range(20_000):
    write(f"line {number}")
signal.setitimer(signal.ITIMER_REAL, 0)
"""


def test_a_signals_handler_may_write_while_another_message_is_written():
    """Python's buffered streams refuse that: Ctrl-C ended a training without a checkpoint."""
    usual = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", WRITER]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=usual)
    time.sleep(1)  # the pipe is full, and a message waits in the middle of its writing
    _, said = process.communicate()
    assert process.returncode == 0, said[-500:]
    assert said.count("from the handler\n") > 5 and "line 19999\n" in said
