"""One test on several ranks: their processes, what they agree on, what they showed.

Begin with:

- ``processes.run_ranks``: one process a rank, ended together
- ``group.membership``: how a rank joins the others
- ``device.AgreedDevice``: what a rank measures on, in step with the others
- ``device.joined``: the ranks as one measurement
- ``torchrun.launch_of``: ranks that ``torchrun`` started
"""
