"""The JSON files that this package writes and reads."""
