"""Shape Mismatch.

What happens: A smaller output is returned that broadcasts to the promised shape.
Why it lies: Less is computed than promised.
What we do: Shape, stride, type and device compared before values.
Limits: The comparison of shapes runs in the candidate's process; the bytes that arrive are judged apart.

Attacks: Fewer elements than promised.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU

ABOUT = Issue(id=14, kind="D", undefended=Undefended(34.7, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("one_row_that_broadcasts", MATMUL_RELU)(
        "import torch\n\ndef run(x, w):\n    return torch.relu(x[:1] @ w)\n"
    ),
    attack("one_row_expanded", MATMUL_RELU)(
        "import torch\n\ndef run(x, w):\n    return torch.relu(x[:1] @ w).expand(256, 256)\n"
    ),
    honest("through_other_shapes", MATMUL_RELU)(
        "import torch\n\ndef run(x, w):\n    return torch.relu(x.view(4, 64, 256) @ w).view(256, 256)\n"
    ),
)
