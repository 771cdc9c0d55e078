"""What every room stands on: errors, checks, files, strict JSON, randomness, types, the registry."""
