"""How much an attack got: pure functions, a figure a sample."""
