"""What everything else stands on: arrays, trees, Variable, Primitive, and reverse and forward mode."""
