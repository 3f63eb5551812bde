"""Problems of this machine, ranked: those that make results wrong first, then those that make them slow or noisy."""
