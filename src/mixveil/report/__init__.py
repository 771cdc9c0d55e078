"""Audits, sweeps and simulations as JSON, pictures and self-contained pages."""
