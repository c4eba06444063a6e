"""What every test process needs."""

import signal

# A shell that starts the tests in the background, or nohup, has these ignored, and every child would inherit that: the
# tests that interrupt a run could not. A handler, unlike an ignored signal, is reset to the default in a child.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)
