"""The same five operations on all chunks at once: five launches instead of 320, temporaries as large as the input."""


def run(x):
    return ((0.25 * x - 0.5) * x + 0.75) * x
