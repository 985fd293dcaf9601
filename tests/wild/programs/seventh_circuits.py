import cirq
import numpy as np
from pyunlocbox import acceleration, functions, solvers

qubits = cirq.LineQubit.range(2)
rng = np.random.default_rng(11)
data = rng.normal(size=12)


def circuit(x):
    return cirq.Circuit(
        cirq.rx(x[0])(qubits[0]),
        cirq.CNOT(*qubits),
        cirq.rz(x[1])(qubits[1]),
        cirq.ry(x[0] * x[1])(qubits[0]),
    )


def parts(z):
    return np.concatenate([np.ravel(z).real, np.ravel(z).imag])


def gate(x):
    return parts(cirq.unitary(cirq.ry(x[0])) @ cirq.unitary(cirq.rz(x[1])))


def power(x):
    return parts(cirq.unitary(cirq.CZPowGate(exponent=x[0])) @ cirq.unitary(cirq.SWAP ** x[1]))


def whole(x):
    return parts(cirq.unitary(circuit(x)))


def final_state(x):
    return parts(cirq.final_state_vector(circuit(x), dtype=np.complex128))


def expectation(x):
    state = cirq.Simulator(dtype=np.complex128).simulate(circuit(x)).final_state_vector
    return (
        (cirq.Z(qubits[0]) * cirq.X(qubits[1]))
        .expectation_from_state_vector(state, {q: k for k, q in enumerate(qubits)})
        .real
    )


def noisy(x):
    return parts(np.array(cirq.kraus(cirq.amplitude_damp(x[0] / 2))) * x[1])


def density(x):
    simulator = cirq.DensityMatrixSimulator(dtype=np.complex128)
    return parts(simulator.simulate(circuit(x)).final_density_matrix)


def entropies(x):
    rho = np.array([[0.6 + 0.1 * x[0], 0.1 * x[1]], [0.1 * x[1], 0.4 - 0.1 * x[0]]], dtype=complex)
    return cirq.von_neumann_entropy(rho)


def fidelity(x):
    a, b = (
        np.array([np.cos(x[0]), np.sin(x[0])], complex),
        np.array([np.cos(x[1]), 1j * np.sin(x[1])], complex),
    )
    return cirq.fidelity(a, b, qid_shape=(2,))


def traced(x):
    a = np.outer(np.arange(1.0, 5) * x[0], np.arange(4.0) + x[1]).reshape(2, 2, 2, 2)
    return cirq.partial_trace(a, [0])


def denoised(x):
    f1, f2 = functions.norm_l2(y=data * x[0]), functions.norm_l1(lambda_=0.3 * x[1])
    solver = solvers.forward_backward(step=0.4, accel=acceleration.dummy())
    return solvers.solve([f1, f2], np.zeros(12), solver, rtol=None, maxit=40, verbosity="NONE")["sol"]


def proximal(x):
    f = functions.norm_l1(lambda_=x[0])
    return f.prox(data, x[1]) + f.eval(data * x[0])


def total_variation(x):
    return functions.norm_tv(dim=1, maxit=30, tol=1e-12, verbosity="NONE").prox(data * x[0], 0.2 * x[1])


def ball(x):
    return functions.proj_b2(y=data * 0.1, epsilon=x[0]).prox(data * x[1], 1.0)


def douglas(x):
    f1, f2 = functions.norm_l2(y=data * x[0], lambda_=x[1]), functions.norm_l1(lambda_=0.2)
    solver = solvers.douglas_rachford(lambda_=1, step=0.5)
    return solvers.solve([f1, f2], np.zeros(12), solver, rtol=None, maxit=30, verbosity="NONE")["sol"]


CALLS = [
    (f, [0.7, 0.4])
    for f in (gate, power, whole, final_state, expectation, noisy, density, entropies, fidelity, traced, denoised, proximal,
              total_variation, ball, douglas)
]  # fmt: skip
