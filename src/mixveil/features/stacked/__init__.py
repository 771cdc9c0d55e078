"""Networks of many clients side by side: the same layers, weights of its own for each client."""
