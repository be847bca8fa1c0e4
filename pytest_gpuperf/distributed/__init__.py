"""One test on several ranks: their processes, what they agree on, what they showed."""
