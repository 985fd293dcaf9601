"""Array operations with their derivatives, one family a file."""
