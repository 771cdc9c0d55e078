"""Attacks on updates: what a server reads off the weights that a party sends back."""
