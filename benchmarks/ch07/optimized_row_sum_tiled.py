"""Walk panels of sixteen columns, one 64-byte cache line of float32 each, so that every line is used whole."""


def run(a):
    panels = a.split(16, dim=1)
    total = panels[0].sum(dim=1)
    for panel in panels[1:]:
        total += panel.sum(dim=1)
    return total
