"""Constants on the pipes between the parent and a worker: flags of a command, and one-byte answers."""

LOADED, READY, DONE, RAISED, QUEUED, SHARED = b"L", b"R", b"D", b"X", b"Q", b"S"
DUMMY, TRACE, WARM, NO_COPY, GATE, ISOLATED = 1 << 31, 1 << 30, 1 << 29, 1 << 28, 1 << 27, 1 << 26
CONTEXT = "context"  # argument of a worker that creates its context on the device before its set-up arrives
BITS = DUMMY | TRACE | WARM | NO_COPY | GATE | ISOLATED
