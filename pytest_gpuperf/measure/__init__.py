"""The phases of one measurement, each in its own file; ``phases`` runs them in order.

Begin with:

- ``plan``: what a measurement is asked, and how much time each phase has
- ``phases.measure``: one call on a device with a clock: ``phases.PHASES`` are what comes
  after the timed rounds
- ``timing.timed_steps``: warm-up and rounds, and what else the machine did meanwhile
- ``emulated.audit``: the same on the simulated GPU
- ``syncs.find_syncs``: syncs in a trace, and their lines
- ``memory.measure_memory``: the peak, its growth, and who holds it
- ``gpu_activity.with_busy``: how busy the GPU is, and its longest gaps
- ``forecast``: the memory of a program, and what would lower it
"""
