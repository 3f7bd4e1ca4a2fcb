#!/usr/bin/env python3
"""on_terminal.py FILE COMMAND...: runs COMMAND on a new pseudo-terminal and presses Ctrl-C once FILE exists. Prints the
command's output and exits with its exit code, or with 124 if it is still running 60 s later."""

import os
import pty
import signal
import sys
import threading
import time

LIMIT = 60


def main():
    awaited, command = sys.argv[1], sys.argv[2:]
    child, terminal = pty.fork()
    if child == 0:
        os.execvp(command[0], command)

    def press():
        end = time.monotonic() + LIMIT
        while not os.path.exists(awaited) and time.monotonic() < end:
            time.sleep(0.05)
        os.write(terminal, b"\x03")
        time.sleep(LIMIT)
        os.kill(child, signal.SIGKILL)
        os._exit(124)

    threading.Thread(target=press, daemon=True).start()
    try:
        while data := os.read(terminal, 4096):
            os.write(1, data)
    except OSError:
        pass  # on Linux, reading fails once the last writer has closed the terminal
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sys.exit(status if status >= 0 else 128 - status)


main()
