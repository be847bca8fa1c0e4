"""Plan, measure, decide and store: the run of all tests, without pytest."""
