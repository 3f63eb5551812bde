"""Answer a question or explain a term from the shipped pages, the documentation and this machine's runs.

Without a configured language model it returns the passages themselves; it never answers from memory. Start with
`answers.py`.
"""
