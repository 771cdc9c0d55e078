"""Files of the projections that come with mixveil; docs/learning.md says how they are made."""
