#!/usr/bin/env python3
"""slow_rank.py COMMAND...: runs the command; as rank 1 of an MPI job it is stopped for 4 of every 10 ms, like on a slower core."""
import os
import signal
import sys
import time


def stop_now_and_then(process):
    """Until the process has ended."""
    try:
        while True:
            time.sleep(0.006)
            os.kill(process, signal.SIGSTOP)
            time.sleep(0.004)
            os.kill(process, signal.SIGCONT)
    except ProcessLookupError:
        return


def main():
    process = os.getpid()
    if os.environ.get("OMPI_COMM_WORLD_RANK") == "1" and os.fork() == 0:
        # A grandchild: the command has no children of ours to wait for.
        if os.fork() == 0:
            os.closerange(0, 3)
            stop_now_and_then(process)
        os._exit(0)
    os.execvp(sys.argv[1], sys.argv[1:])


main()
