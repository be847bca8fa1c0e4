"""pytest inside a measuring process: the fixture, and what a test does with it."""
