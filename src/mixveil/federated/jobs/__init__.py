"""Jobs between machines: what a party answers, what a server collects and trains."""
