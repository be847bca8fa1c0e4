"""A against B on the same machine, interleaved.

Begin with:

- ``measure.compare_sides``: ``gpuperf.compare``: times in turns, then counts of each
  side
- ``measure.compare_steps``: the turns
- ``isolation.SharedState``: what both sides reach and one changes
- ``same_training.check_training``: whether both do the same training
"""
