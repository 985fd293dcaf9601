"""Regions, views and writes of arrays, and elements chosen by an index or a mask."""
