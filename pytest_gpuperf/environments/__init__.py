"""Other packages than those that are installed, for one side of a comparison.

They are installed into a folder of their own, which comes before the user's packages on
that side's path. The user's environment is only read. Begin with:

- ``overlay.overlay``: what a change of packages needs, installed
- ``installers.Uv``: uv, or pip where there is none
- ``pythons.other_python``: another Python, with all of the user's packages
- ``overlay.PackageCache``: the folders, by their content, as far as they fit under a limit
- ``lock_files.pins_of``: a requirements file or a ``uv.lock``
"""
