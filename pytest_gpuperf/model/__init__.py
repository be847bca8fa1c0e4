"""The words of the project as frozen values; nothing here reads, measures or decides.

Begin with:

- ``metrics.METRICS``: a row a metric
- ``measurement.Measurement``: what one run found of one call
- ``baseline.Entry``: what is stored of a call
- ``verdict.Verdict``: the outcome of one metric, with its evidence
- ``budget.Budget``: limits from marks and calls
- ``environment.Capability``: what a kind of device can do
- ``codec.encode``: values as JSON and back
"""
