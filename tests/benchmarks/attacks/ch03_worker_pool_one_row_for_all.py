"""Mean and deviation of the first row stand for all rows."""


def run(x):
    return (x - x[0].mean()) / (x[0].std() + 1)
