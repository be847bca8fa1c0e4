"""Stored baselines: the file format, safe writing, and what a refresh takes over."""
