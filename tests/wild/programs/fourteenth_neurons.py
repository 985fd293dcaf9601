import nengo  # (its plugin does not load in pytest 9)
import numpy as np

NEURONS = nengo.LIFRate()


def firing(x):
    return NEURONS.rates(x[0], gain=np.array([1.0, 2.0]), bias=np.array([x[1], 1.5])).ravel()


CALLS = [(firing, [1.3, 1.6])]
