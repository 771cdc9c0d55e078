"""The pages of docs/results, made of stored results and of the papers' figures alone."""
