"""Tools that watch a program: anomalies, audit, graph and profile."""
