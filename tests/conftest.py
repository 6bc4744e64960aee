"""What all tests start from."""

import signal

# A shell without job control starts what runs in its background with Ctrl-C ignored, and tests of Ctrl-C inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
