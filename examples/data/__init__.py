"""Data of the examples, made up and not downloaded."""
