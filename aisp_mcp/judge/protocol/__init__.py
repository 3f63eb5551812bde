"""Memory and messages that the parent, the verifier and the workers share."""
