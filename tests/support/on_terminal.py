#!/usr/bin/env python3
"""on_terminal.py FILE COMMAND...: runs COMMAND on a new pseudo-terminal and presses Ctrl-C once FILE exists. Prints the
command's output and exits with its exit code. If the terminal is still in use 60 s later, exits with 124 and prints which
processes use it, and their children."""

import os
import pty
import signal
import subprocess
import sys
import threading
import time

LIMIT = 60


def print_users(terminal):
    """Prints the processes whose standard input, output or error is the terminal, a path, and their children."""
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            if terminal in [os.readlink(f"/proc/{process}/fd/{number}") for number in (0, 1, 2)]:
                subprocess.run(["ps", "-o", "pid,ppid,stat,wchan:20,etime,args", "-p", process, "--ppid", process], check=False)
        except OSError:
            pass  # it has ended, or belongs to another user


def main():
    awaited, command = sys.argv[1], sys.argv[2:]
    child, terminal = pty.fork()
    if child == 0:
        # A shell starts background processes with this signal ignored, and they would pass that on.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.execvp(command[0], command)

    def press():
        name = os.readlink(f"/proc/{child}/fd/0")
        end = time.monotonic() + LIMIT
        while not os.path.exists(awaited) and time.monotonic() < end:
            time.sleep(0.05)
        os.write(terminal, b"\x03")
        time.sleep(LIMIT)
        print("on_terminal.py: still in use:", flush=True)
        print_users(name)
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
