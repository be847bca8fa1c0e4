"""Loops that somebody else runs, measured as steps: trainers, and a block of a test.

Begin with:

- ``handover.Handover``: the loop and what measures, a thread each, of which one waits
- ``handover.Steps``: the block of ``with gpuperf.steps() as step:``
- ``handover.TrainingLoop``: what an adapter is, one file for each framework
- ``frameworks.FRAMEWORKS``: the frameworks, and their oldest versions
"""
