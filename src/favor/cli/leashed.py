"""A command of favor in a process that ends with the one that started it.

`python -P -m favor.cli.leashed WORDS...` is `favor WORDS...`. When stdin ends, whoever started it is gone, and the
process tells itself to stop as a cluster would at the end of a time slot: a training then keeps a checkpoint.
"""

import os
import signal
import sys
import threading

from favor.cli import main


def _stop_with_the_parent() -> None:
    os.read(sys.stdin.fileno(), 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_stop_with_the_parent, daemon=True).start()
    main()
