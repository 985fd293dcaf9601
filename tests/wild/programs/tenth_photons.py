import numpy as np
import PyMoosh as pm
import qutip
from astropy import units as u
from einsteinpy.coordinates import Cartesian, SphericalDifferential
from einsteinpy.metric import Kerr, KerrNewman, Schwarzschild
from hankel import HankelTransform, SymmetricFourierTransform
from hmf import MassFunction
from sgp4.api import jday
from sgp4.model import Satrec
from thewalrus import hafnian, perm, quantum, symplectic


def mirror(x):
    stack = pm.Structure([1.0, x[0] ** 2, x[1] ** 2, 2.25], [0, 1, 2, 3], [0, x[2], 80, 0], verbose=False)
    r, t, reflected, transmitted = pm.coefficient(stack, 600.0, 0.3, 1)
    return np.array([r.real, r.imag, t.real, reflected, transmitted])


def absorbed(x):
    stack = pm.Structure([1.0, x[0] + 0.5j * x[1], 2.25], [0, 1, 2], [0, x[2], 0], verbose=False)
    return pm.absorption(stack, 600.0, 0.4, 0)[0].real


def squeezed_light(x):
    symplectic_matrix = symplectic.two_mode_squeezing(x[0], x[1]) @ symplectic.expand(
        symplectic.rotation(x[2]), [0], 2
    )
    cov = symplectic_matrix @ symplectic_matrix.T
    return quantum.photon_number_covmat(np.zeros(4), cov)


def lossy_light(x):
    mu, cov = symplectic.loss(
        np.array([x[0], 0.2]), symplectic.squeezing(x[1]) @ symplectic.squeezing(x[1]).T, x[2], 0
    )
    return np.array([np.sum(symplectic.mean_photon_number(mu, cov)), quantum.vonneumann_entropy(cov)])


def fidelity_of_states(x):
    first = np.diag([x[0], x[1]])
    return quantum.fidelity(np.zeros(2), first, np.array([x[2], 0.1]), np.diag([2.0, 2.5]))


def photons(x):
    cov = symplectic.squeezing(x[0]) @ symplectic.squeezing(x[0]).T + x[1] * np.eye(2)
    return quantum.density_matrix_element(np.array([x[2], 0.3]), cov, [1], [1]).real


def hafnian_of_a_graph(x):
    half = np.reshape(x, (4, 4))
    return hafnian(half + half.T)


def permanent(x):
    return perm(np.reshape(x, (4, 4)))


def qubits(x):
    state = (x[0] * qutip.basis(2, 0) + x[1] * qutip.basis(2, 1)).unit()
    return np.array([qutip.expect(qutip.sigmax(), state), qutip.expect(qutip.sigmaz(), state)])


def static_hole(x):
    position = SphericalDifferential(
        0 * u.s, 10 * u.m, 1 * u.rad, 0.1 * u.rad, 0 * u.m / u.s, 0.1 * u.rad / u.s, 0.2 * u.rad / u.s
    )
    metric = Schwarzschild(coords=position, M=5e27 * u.kg)
    return np.diag(metric.metric_covariant(np.array([0.0, x[0], x[1], 0.3])))


def rotating_hole(x):
    return np.array(
        [
            Kerr.sigma(x[0], x[1], 5e27, x[2]),
            Kerr.delta(x[0], 5e27, x[2]),
            KerrNewman.rho(x[0], x[1], 5e27, x[2]),
        ]
    )


def spherical(x):
    found = Cartesian(0 * u.s, x[0] * u.m, x[1] * u.m, x[2] * u.m).convert_spherical()
    return np.array(list(found[1:4]))


def hankel_transform(x):
    return HankelTransform(nu=0, N=60, h=0.03).transform(lambda r: x[0] / (r**2 + x[1]), x[2], ret_err=False)


def fourier_in_three_dimensions(x):
    return SymmetricFourierTransform(ndim=3, N=80, h=0.03).transform(
        lambda r: np.exp(-x[0] * r), x[1], ret_err=False
    )


def halo_mass_function(x):
    found = MassFunction(Mmin=12, Mmax=13, dlog10m=0.5, transfer_model="EH", sigma_8=x[0], n=x[1])
    return np.log(found.dndm)


def orbit(x):
    satellite = Satrec()
    satellite.sgp4init(2, "i", 5, 18441.785, 2.8098e-05, 6.969e-12, 0.0, x[0], 5.79, x[1], 0.33, x[2], 6.097)
    return np.array(satellite.sgp4_tsince(20.0)[1])


def julian_day(x):
    day, fraction = jday(2020, 3, 4, 5, x[0], x[1])
    return fraction


CALLS = [
    (mirror, [1.4, 2.0, 90.0]),
    (absorbed, [2.0, 0.7, 120.0]),
    (squeezed_light, [0.4, 0.3, 0.7]),
    (lossy_light, [0.4, 0.3, 0.7]),
    (fidelity_of_states, [2.2, 1.9, 0.4]),
    (photons, [0.4, 0.3, 0.7]),
    (hafnian_of_a_graph, np.cos(np.arange(16.0))),
    (permanent, np.cos(np.arange(16.0))),
    (qubits, [0.6, 0.7]),
    (static_hole, [10.0, 1.0]),
    (rotating_hole, [10.0, 1.0, 0.3]),
    (spherical, [1.0, 0.5, 0.3]),
    (hankel_transform, [1.0, 1.3, 0.7]),
    (fourier_in_three_dimensions, [1.3, 0.7]),
    (halo_mass_function, [0.8, 0.96]),
    (orbit, [0.185, 0.594, 0.047]),
    (julian_day, [10.0, 30.0]),
]
