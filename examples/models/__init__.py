"""Networks of the examples, one a file, small enough for a CPU."""
