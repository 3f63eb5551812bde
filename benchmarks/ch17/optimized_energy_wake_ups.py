"""The same formula on all chunks at once: five launches instead of some three hundred."""


def run(x):
    return ((0.25 * x - 0.5) * x + 0.75) * x
