"""The history: an immutable file a run, wherever it lies, and an index to read it by.

Begin with:

- ``document.dumps_rows``: the file of one run
- ``place.place_at``: a folder or a URL
- ``index.HistoryIndex``: questions about many runs
"""
