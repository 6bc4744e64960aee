"""What all tests start from."""

import signal

# A shell without job control starts what runs in its background with Ctrl-C ignored, which tests of Ctrl-C would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)
