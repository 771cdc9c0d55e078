"""The command line: one thin file a verb. Nothing slow is imported before a verb runs."""
