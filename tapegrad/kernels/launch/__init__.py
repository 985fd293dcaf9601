"""Compilation of the emitted text, and the launch.

`cpu` and `cuda` compile and launch there. `repeat` repeats a launch on other arrays. `waiting` handles long
launches and Ctrl-C. `host` compiles CUDA C with g++ for the CPU."""
