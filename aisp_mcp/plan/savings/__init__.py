"""What optimisations cost and save: prices, stored comparisons, published effects of techniques.

It never predicts a speed-up that nobody measured. Start with `estimates.py`.
"""
