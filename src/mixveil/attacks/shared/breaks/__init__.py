"""What the breaks of Carlini et al. and of Luo et al. share: rows compared, clustered, assigned, solved and fused."""
