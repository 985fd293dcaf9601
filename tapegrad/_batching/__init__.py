"""`vmap` as a trace: the trace, the batching rules, and what captured arrays and watchers need of it."""
