"""The only package that imports flwr."""
