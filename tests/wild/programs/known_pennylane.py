import numpy as np
import pennylane as qml
from pennylane import math as qmath

H = qml.Hamiltonian([0.5, 0.7], [qml.PauliZ(0), qml.PauliX(0) @ qml.PauliX(1)])
dev = qml.device("default.qubit", wires=2)


@qml.qnode(dev)
def node(x):
    qml.RX(x[0], wires=0)
    qml.RY(x[1], wires=1)
    qml.CNOT(wires=[0, 1])
    return qml.expval(qml.PauliZ(1))


def circuit(x):
    return node(x)


def rotation(x):
    return abs(qml.RX.compute_matrix(x[0]))


def matrix(x):
    return abs(qml.matrix(qml.CRY(x[0], wires=[0, 1])))


def fidelity(x):
    a = np.array([np.cos(x[0]), np.sin(x[0])])
    return abs(np.vdot(a, qml.RY.compute_matrix(x[1]) @ np.array([1.0, 0.0]))) ** 2


def purity(x):
    rho = np.array([[x[0] / 2, 0.1], [0.1, 1 - x[0] / 2]])
    return qmath.purity(rho, [0])


p2 = np.array([0.4, 0.7])
CALLS = [(f, p2) for f in (circuit, rotation, matrix, fidelity, purity)]
