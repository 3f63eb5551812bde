"""Eval Code Exploitation.

What happens: Answers, durations or shared memory are forged.
Why it lies: The report would be the candidate's own.
What we do: No result travels from a worker; answers are single bytes.
Limits: The costs of the loop are estimated; where they exceed the call the ratio is not known.

The construction of the referee neutralises it: there is no detector, and the attack runs against the whole.
"""
