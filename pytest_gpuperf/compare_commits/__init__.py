"""Commit against commit: two versions of a project, measured in turns.

Begin with:

- ``pairs.compare_versions``: ``gpuperf ab``: pairs of runs until each test is decided
- ``culprits.smallest_bad``: which of many packages did it
- ``sides.Side``: the code and the packages of one side
- ``sides.Checkout``: the files of a commit
- ``side_server.SideServer``: what runs it
"""
