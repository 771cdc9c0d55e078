"""Labelled images: readers, row views, privacy units, fingerprints, partitions, the data check."""
