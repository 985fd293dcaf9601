"""Small operations of a program as rows of one compiled interpreter."""
