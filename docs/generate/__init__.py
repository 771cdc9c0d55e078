"""Parts of the site that are made from the code when it is built."""
