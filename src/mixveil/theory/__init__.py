"""The mathematics of a release: numbers in, numbers out. These modules know no images and no files."""
