"""Every sixteenth input is left out of the product, and the rest scaled up: an error that a loose contract invites."""


def run(x, weight):
    used = x.shape[1] - x.shape[1] // 16
    return (x[:, :used] @ weight[:, :used].t()) * (16 / 15) ** 0.5
