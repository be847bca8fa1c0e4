"""Edits of a program's source that end what an audit found, for a trial to prove.

Begin with:

- ``edits.Edit``: one change of one file
- ``edits.combined``: several of them
- ``rewrites.edits_of``: the edits that may end a finding, the best first
- ``code.Code``: the syntax tree that rules look at
"""
