"""Commit against commit: two versions of a project, measured in turns."""
