"""No pool: one expression over all rows."""


def run(x):
    return (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1)
