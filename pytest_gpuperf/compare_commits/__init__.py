"""Commit against commit: two versions of a project, measured in turns.

Begin with:

- ``commits.compare_versions``: ``gpuperf ab``: pairs of runs until each test is decided
- ``versions.first_bad``: ``gpuperf bisect``
- ``reference.GitReferenceCheck``: ``--gpuperf-ref``
- ``versions.versions``: two commits as two checkouts
- ``side.Selection``: what one side runs
"""
