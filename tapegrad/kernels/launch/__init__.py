"""From text to machine code, and the call.

`cpu` and `cuda` a generated kernel there, `repeat` the same launch on other arrays, `waiting` long
launches and Ctrl-C, `host` CUDA C that g++ compiles for the CPU."""
