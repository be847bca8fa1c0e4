"""The history: an immutable file a run, wherever it lies, and an index to read it by."""
