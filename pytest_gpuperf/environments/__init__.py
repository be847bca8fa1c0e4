"""Other packages than those that are installed, for one side of a comparison.

They are installed into a folder of their own, which comes before the user's packages on
that side's path. The user's environment is only read.

- ``lock_files``: the pins of a requirements file or a ``uv.lock``, against what is here.
- ``installers``: uv, or pip where there is none: what a change needs, and its files.
- ``cache``: the folders, by their content, as far as their size is within a limit.
- ``overlay``: the packages of one side.

It knows nothing of comparisons. ``cli`` names the packages, ``compare_commits`` runs them.
"""
