"""Numbers in, numbers out: what a release gives away and what it cannot. Knows no images and no files."""
