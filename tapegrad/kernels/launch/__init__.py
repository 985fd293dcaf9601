"""From text to machine code, and the call.

`cpu` and `cuda` the code of a program there, `repeat` the same launch on other arrays, `waiting` long
launches and Ctrl-C, `host` CUDA C that g++ compiles for the CPU."""
