"""Answer questions: explain terms, suggest tools, cite pages, look up models on the Hugging Face Hub.

It never measures anything and never invents a number: an answer cites a shipped page or a stored run. Start with
`ask/answers.py`.
"""
