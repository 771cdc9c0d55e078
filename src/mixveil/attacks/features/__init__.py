"""Attacks on rows that are features of images."""
