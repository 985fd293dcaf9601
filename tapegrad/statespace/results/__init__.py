"""What a fit found, and how it is shown."""
