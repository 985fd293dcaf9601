import control as ct
import numpy as np

A = np.array([[-1.0, 0.5], [0.2, -2.0]])
B, C = np.array([[1.0], [0.5]]), np.array([[1.0, 0.0]])


def frequency(x):
    return abs(ct.tf([x[0]], [1.0, x[1], 1.0])(1.5j))


def step(x):
    return ct.step_response(ct.ss(x, B, C, 0.0), np.linspace(0, 2, 5)).outputs


def forced(x):
    return ct.forced_response(ct.ss(A, B, C, 0.0), np.linspace(0, 1, 6), x).outputs


def feedback(x):
    return ct.feedback(ct.tf([x[0]], [1.0, 2.0]), ct.tf([1.0], [1.0, x[1]])).dcgain()


def lyapunov(x):
    return ct.lyap(x, np.eye(2))


def care(x):
    return ct.care(x, B, np.eye(2))[0]


def lqr(x):
    return ct.lqr(x, B, np.eye(2), np.eye(1))[0]


def controllability(x):
    return ct.ctrb(x, B)


def poles(x):
    return np.sort(ct.ss(x, B, C, 0.0).poles().real)


def dcgain(x):
    return ct.ss(x, B, C, 0.0).dcgain()


def h2(x):
    return ct.system_norm(ct.ss(x, B, C, 0.0), 2)


def bode(x):
    return ct.frequency_response(ct.ss(x, B, C, 0.0), np.array([0.5, 1.0])).magnitude


p2 = np.array([1.2, 0.7])
CALLS = [
    (frequency, p2), (step, A), (forced, np.array([0.0, 1.0, 0.5, 0.2, -0.3, 0.1])), (feedback, p2),
    (lyapunov, A), (care, A), (lqr, A),
    (controllability, A), (poles, A), (dcgain, A), (h2, A), (bode, A),
]  # fmt: skip
