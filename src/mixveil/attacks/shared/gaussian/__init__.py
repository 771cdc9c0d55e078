"""The parts of the attack of Chen et al. on Gaussian images."""
