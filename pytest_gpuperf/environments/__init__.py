"""Other packages than those that are installed, for one side of a comparison.

They are installed into a temporary folder, which comes before the user's packages on
that side's path; what uv and pip download stays in their caches. The user's environment is
only read. Begin with:

- ``overlay.Packages``: what a change of packages needs, installed
- ``overlay.Uv``: uv, or pip where there is none
- ``lock_files.pins_of``: a requirements file or a ``uv.lock``
"""
