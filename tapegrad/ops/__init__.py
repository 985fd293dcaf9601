"""Operations with their derivatives, one family a file."""
