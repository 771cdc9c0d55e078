"""One table across the project: every way to learn together, on one data set and one partition."""
