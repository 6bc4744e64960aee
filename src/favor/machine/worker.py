"""A job in its own process, the worker's side: read the request, watch the parent, answer line by line.

`python -P -m MODULE FD` reads a request from the first line of stdin and writes JSON lines to the file descriptor FD.
Every byte after that line is a turn for a worker that takes turns with others. When stdin ends the parent is gone, and
the worker ends too.
"""

import os
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue

from favor.errors import FavorError
from favor.machine.messages import Channel


def serve(work: Callable[[str, Channel], None], when_the_parent_ends: Callable[[], object]) -> None:
    """Do the requested work."""
    answers = int(sys.argv[1])
    os.set_inheritable(answers, False)
    request = sys.stdin.readline()
    turns: SimpleQueue[bytes] = SimpleQueue()

    def watch() -> None:
        while said := os.read(sys.stdin.fileno(), 1):
            turns.put(said)
        when_the_parent_ends()

    # This thread blocks in a system call, so it takes no time from the work.
    threading.Thread(target=watch, daemon=True).start()
    answer(work, request, Channel(lambda line: os.write(answers, line.encode()), turns))


def answer(work: Callable[[str, Channel], None], request: str, channel: Channel) -> None:
    """Do the work; any exception is reported as its failure, with the traceback on stderr."""
    channel.begin("imports")
    from favor.machine.memory import is_out_of_memory

    try:
        work(request, channel)
    except Exception as error:
        what = str(error) if isinstance(error, FavorError) else f"{type(error).__name__}: {error}"
        channel.failed("out_of_memory" if is_out_of_memory(error) else "failed", what)
        raise
