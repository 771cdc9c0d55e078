"""Split networks: layers, known networks, where they are cut, and each half on disk."""
