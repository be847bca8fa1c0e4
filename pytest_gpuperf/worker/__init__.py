"""pytest inside a measuring process: the fixture, and what a test does with it.

Begin with:

- ``fixture.Gpuperf``: what a test does with the fixture
- ``measurer.Measuring``: what a call measures
- ``child.measure``: pytest in a measuring process
- ``items.plan_of``: what a collected test asks for
- ``fixture.PlainRun``: the fixture without ``--gpuperf``
"""
