"""A against B on the same machine, interleaved."""
