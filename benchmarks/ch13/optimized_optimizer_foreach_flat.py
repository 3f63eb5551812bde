"""All parameters as one flat buffer: the plain formulas, once, over memory that is in one piece anyway."""

STEP, RATE, DECAY, DECAY_SQUARE, EPSILON = 10, 1e-3, 0.9, 0.999, 1e-8


def run(weight, grad, first, second):
    first = first * DECAY
    first.add_(grad, alpha=1 - DECAY)
    second = second * DECAY_SQUARE
    second.addcmul_(grad, grad, value=1 - DECAY_SQUARE)
    scale = (second / (1 - DECAY_SQUARE**STEP)).sqrt_().add_(EPSILON)
    return {
        "weight": weight.addcdiv(first, scale, value=-RATE / (1 - DECAY**STEP)),
        "first": first,
        "second": second,
    }
