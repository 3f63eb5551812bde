"""Weight transposed and copied once, ahead of time: the product does the same work on the same number of bytes."""


def prepare(params, example):
    return {"columns": params["weight"].t().contiguous()}


def run(x, columns):
    return x @ columns
