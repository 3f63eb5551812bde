"""Device Mismatch.

What happens: The work is done on another, faster or idle device.
Why it lies: The device that is named in the result did not do it.
What we do: One visible device per worker; the exact device of outputs.
Limits: A device that is reached through a child process is seen as a child alone.
"""
