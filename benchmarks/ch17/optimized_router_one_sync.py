"""Still counted in Python, but all experts are read at once: most of the loop's time was waiting."""

import torch

SLACK = 1.25


def run(logits):
    capacity = int(SLACK * logits.shape[0] / logits.shape[1])
    chosen = logits.argmax(dim=1)
    taken, slots = [0] * logits.shape[1], []
    for expert in chosen.tolist():
        slots.append(taken[expert] if taken[expert] < capacity else -1)
        taken[expert] += 1
    return {"expert": chosen, "slot": torch.tensor(slots, device=logits.device)}
