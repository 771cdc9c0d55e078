"""What several attacks use: the linear model, chains of pairs, networks and their training."""
