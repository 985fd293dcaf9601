"""Tsitouras' explicit Runge-Kutta pair of orders 5 and 4.

Ch. Tsitouras, Runge-Kutta pairs of order 5(4) satisfying only the first column simplifying assumption,
Computers & Mathematics with Applications 62 (2011) 770-775."""

from collections.abc import Callable

NODES = (0.0, 0.161, 0.327, 0.9, 0.9800255409045097, 1.0, 1.0)
STAGES = (
    (),
    (0.161,),
    (-0.008480655492356989, 0.335480655492357),
    (2.8971530571054935, -6.359448489975075, 4.3622954328695815),
    (5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525),
    (5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383),
    (0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081, 2.324710524099774),
)
ERROR = (
    -0.00178001105222577714, -0.0008164344596567469, 0.007880878010261995, -0.1447110071732629,
    0.5823571654525552, -0.45808210592918697, 0.015151515151515152,
)  # fmt: skip

STABILITY_BOUND = 3.15  # nine tenths of the interval of stability on the negative axis


def combined(weights: tuple, stages: list):
    """Return the sum of weight times stage."""
    total = weights[0] * stages[0]
    for w, k in zip(weights[1:], stages[1:], strict=True):
        total = total + w * k
    return total


def tsitouras_step(f: Callable, t, y, slope, h) -> tuple:
    """Return the state after a step, the estimate of its error, the slope there, and a stiffness.

    The last two stages are at one time. They estimate the largest eigenvalue of df/dy (E. Hairer and G.
    Wanner, Solving Ordinary Differential Equations II, section IV.2). The stiffness is the square of h times
    it, over the bound of stability; above 1 the step is as long as stability allows."""
    slopes, new = [slope], y
    for c, weights in zip(NODES[1:], STAGES[1:], strict=True):
        before, new = new, y + h * combined(weights, slopes)
        slopes.append(f(t + c * h, new))
    change, apart = h * (slopes[-1] - slopes[-2]), STABILITY_BOUND * (new - before)
    return new, h * combined(ERROR, slopes), slopes[-1], (change * change).sum() / (apart * apart).sum()
