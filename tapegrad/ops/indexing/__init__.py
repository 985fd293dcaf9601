"""Regions, views and writes of arrays, and elements selected by an index or a mask."""
