"""The module that every peer serves twice: it occupies its device for 20 ms and notes whose request it was."""

import ctypes
import os
import time

SPAN_S = 0.020
PR_SET_TIMERSLACK = 29

_libc = ctypes.CDLL(None)
# Appended to by both modules' processes; one short write a line, so that lines do not mix.
_runs = os.open(os.environ["SPILLGATE_PEERS_RUNS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def occupy(module, number):
    """Takes the device's time for one request, also when nobody waits for the answer any more."""
    end = time.monotonic() + SPAN_S
    # As exact as Spillgate's emulated devices; it is set for the calling thread only.
    _libc.prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    os.write(_runs, f"{module} {number}\n".encode())
    while (left := end - time.monotonic()) > 0:
        time.sleep(left)
