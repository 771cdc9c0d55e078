"""Learning together: the algorithms of federated learning, those that send once, and all of them side by side."""
