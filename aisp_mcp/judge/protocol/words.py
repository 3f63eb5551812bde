"""Constants on the pipes between the parent and a worker: flags of a command, and one-byte answers."""

LOADED, READY, DONE, RAISED, QUEUED, SHARED = b"L", b"R", b"D", b"X", b"Q", b"S"
DUMMY, TRACE, WARM, NO_COPY = 1 << 31, 1 << 30, 1 << 29, 1 << 28
GATE, ISOLATED, STORE, TOUCH = 1 << 27, 1 << 26, 1 << 25, 1 << 24
BITS = DUMMY | TRACE | WARM | NO_COPY | GATE | ISOLATED | STORE | TOUCH
