"""The recording of a program: a trace below all others."""
