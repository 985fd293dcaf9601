"""`vmap` as a trace: the trace, the batching rules, the marks of captured arrays, and traces with a
watcher."""
