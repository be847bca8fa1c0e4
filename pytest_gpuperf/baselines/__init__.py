"""Stored baselines: the file format, safe writing, and what a refresh takes over.

Begin with:

- ``store.read``: the stored entries of one kind of hardware
- ``store.update``: a safe write during other runs
- ``format.loads``: the file format, each part checked
- ``refresh.new_entry``: what a refresh stores of a test
- ``acceptance.acceptance``: what ``gpuperf accept`` takes of a pending file
- ``drift.anchored``: how far a refresh may go unasked
"""
