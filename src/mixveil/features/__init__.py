"""Public networks and what is made with them: backbones, extractor, cache, projection, displacement."""
