"""The transforms: grad, jvp, vjp, hessian, hvp, vmap, linearize, checkpoint, rule and Tape."""
