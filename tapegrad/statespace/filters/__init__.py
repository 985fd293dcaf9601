"""Kalman filters and smoothers, on arrays and compiled."""
