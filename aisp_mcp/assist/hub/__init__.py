"""Search the Hugging Face Hub and download models into one folder.

It needs the `hub` extra and never loads or runs a model. Start with `client.py`.
"""
