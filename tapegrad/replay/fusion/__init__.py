"""Large operations of a program as compiled loops."""
