"""Energy Elsewhere.

What happens: Where energy decides, work is left out, kept or moved to where and when the counter is not looked at.
Why it lies: The work costs its energy all the same, or the answer is not computed.
What we do: Counted rounds are rounds like any others: secret inputs, poison, comparisons, and nobody runs outside them.
Limits: A device's counter shows that device alone. Batching that saves energy and no time.

Attacks: Fewer products after many calls, answers kept by address, a thread that works behind the answer.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import spec

ABOUT = Issue(
    id=104,
    kind="B",
    control="The counter is the driver's and read by the parent; counted rounds are verified",
    undefended=Undefended(why="not measured yet."),
)

PRODUCTS = spec("The mean of two equal products; what counts is energy.")("""
goal = "energy"

def inputs(self, rng):
    return {"a": rng.randn(192, 192), "b": rng.randn(192, 192)}

def run(self, a, b):
    c = a @ b
    return (a @ b + c) / 2
""")

CASES = (
    attack("fewer_products_after_many_calls", PRODUCTS)("""
calls = 0

def run(a, b):
    global calls
    calls += 1
    c = a @ b
    if calls > 200 and calls % 2:
        c[96:] = c[:96]
    return c
"""),
    attack("energy_spared_by_address", PRODUCTS)("""
kept = {}

def run(a, b):
    if a.data_ptr() not in kept:
        kept[a.data_ptr()] = a @ b
    return kept[a.data_ptr()].clone()
"""),
    attack("product_left_to_a_thread", PRODUCTS)("""
import threading, torch

def run(a, b):
    out = torch.zeros_like(a)
    threading.Thread(target=torch.mm, args=(a, b), kwargs={"out": out}).start()
    return out
"""),
    honest("one_product_for_two", PRODUCTS)("\ndef run(a, b):\n    return a @ b\n"),
    honest("one_product_on_one_core", PRODUCTS)("""
import torch

def prepare(params, example):
    torch.set_num_threads(1)
    return params

def run(a, b):
    return torch.mm(a, b)
"""),
)
