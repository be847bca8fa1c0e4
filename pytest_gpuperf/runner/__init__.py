"""Plan, measure, decide and store: the run of all tests, without pytest.

Begin with:

- ``evaluation.RunEvaluator``: a run in five stages: measure, judge, store, trace, report
- ``rounds.Rounds``: which test is run again, and when
- ``pool.WorkerPool``: processes that measure, one a device slot
- ``fork_server.ForkServer``: how they start in milliseconds
- ``baseline_writer.BaselineWriter``: what is stored
- ``git.Repository``: commits of the project
"""
