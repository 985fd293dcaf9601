"""Water waves, geodesy, anisotropic solids, beams, crystals."""

import mechkit
import numpy as np
import pycba
from diffpy.structure import Lattice, Structure
from geodepy import constants, convert, geodesy, survey, transform
from geodepy.statistics import error_ellipse, vcv_cart2local
from orix.crystal_map import Phase
from orix.quaternion import Orientation, Rotation, symmetry
from orix.vector import Miller, Vector3d
from raschii import AiryWave, FentonWave, StokesWave

PLACES = np.linspace(0.0, 30.0, 5)


def stream_function_wave(x):
    """The package's first example: the elevation and the speed under the crest."""
    wave = FentonWave(height=5.0 * x[0], depth=25.0 * x[1], length=100.0 * x[2], N=5)
    return np.concatenate([wave.surface_elevation(PLACES, t=0), np.ravel(wave.velocity(0.0, 20.0))])


def stokes_wave(x):
    wave = StokesWave(height=5.0 * x[0], depth=25.0 * x[1], length=100.0 * x[2], N=5)
    return np.concatenate([wave.surface_elevation(PLACES, t=1.5), [wave.c]])


def airy_wave(x):
    wave = AiryWave(height=5.0 * x[0], depth=25.0 * x[1], period=8.0 * x[2])
    return wave.velocity(PLACES, np.full(5, 20.0)).ravel() + wave.length


def cartesian(x):
    return np.array(convert.xyz2llh(-4e6 * x[0], 3e6 * x[1], -4e6 * x[2]))


def datum(x):
    moved = transform.conform7(-4e6 * x[0], 3e6 * x[1], -4e6 * x[2], constants.gda94_to_gda2020)
    return np.array(moved[:3]) / 1e3 + np.array(geodesy.xyz2enu(-35 * x[0], 149 * x[1], *x))


def ellipse(x):
    matrix = np.diag(x) + 0.1 * np.outer(x, x)
    return np.array(error_ellipse(vcv_cart2local(matrix, -35.0, 149.0)))


def distance_correction(x):
    parameters = survey.first_vel_params(0.85 * x[0], 4e8, n_REF=1.000281)
    return survey.first_vel_corrn(1000 * x[1], parameters, 20 * x[2], 1010, rel_humidity=60)


def isotropic(x):
    material = mechkit.material.Isotropic(E=2000 * x[0], nu=0.3 * x[1])
    return material.stiffness_mandel6 @ np.arange(6.0) + material.K + material.compliance_voigt[0]


def transversal(x):
    material = mechkit.material.TransversalIsotropic(
        E_l=100 * x[0], E_t=20 * x[1], nu_lt=0.3, G_lt=10 * x[2], G_tt=7, principal_axis=[0, 1, 0]
    )
    return material.stiffness_mandel6.ravel()[::5]


def notations(x):
    converter = mechkit.notation.Converter()
    tensor = np.outer(x, x) + np.eye(3) * x[0]
    return np.concatenate(
        [converter.to_mandel6(tensor), mechkit.operators.dev_tensor_2nd_order(tensor).ravel()]
    )


def beam(x):
    analysis = pycba.BeamAnalysis([7.5, 7.0 * x[0]], 30e3 * x[1], [-1, 0, -1, 0, -1, 0])
    analysis.add_udl(1, 20 * x[2])
    analysis.add_pl(2, 50.0, 3.0)
    analysis.analyze()
    return np.concatenate([analysis.beam_results.R, analysis.beam_results.results.M[::40]])


def sagging_beam(x):
    analysis = pycba.BeamAnalysis([5.0, 6.0], [30e3 * x[0], 20e3 * x[1]], [-1, -1, 100 * x[2], 0, -1, 0])
    analysis.add_trap(1, 10.0, 20.0, 1.0, 2.0)
    analysis.analyze()
    return 1e3 * analysis.beam_results.D


def orientations(x):
    """Grains with Euler angles: matrices and the disorientation."""
    first = Orientation.from_euler([x[0], x[1], 0.3], symmetry=symmetry.Oh)
    second = Orientation.from_euler([0.2, 0.7, x[2]], symmetry=symmetry.Oh)
    return np.append(first.to_matrix().ravel(), first.angle_with(second))


def rotated_vectors(x):
    rotation = Rotation.from_axes_angles([1, 2, 3], x[0]) * Rotation.from_axes_angles([0, 1, -1], x[1])
    turned = rotation * Vector3d([[1.0, 0.2, x[2]], [0.3, 1.0, 0.5]])
    return np.concatenate([turned.data.ravel(), turned.azimuth, rotation.to_rodrigues().data.ravel()])


def lattice_planes(x):
    lattice = Lattice(3 * x[0], 3.5 * x[1], 5, 90, 90, 120 * x[2])
    phase = Phase(point_group="1", structure=Structure(lattice=lattice))
    planes = Miller(hkl=[[1, 1, 1], [2, 0, 1]], phase=phase)
    return np.append(planes.length, planes[0].angle_with(planes[1]))


CALLS = [
    (stream_function_wave, [1.1, 0.9, 1.05]),
    (stokes_wave, [1.1, 0.9, 1.05]),
    (airy_wave, [1.1, 0.9, 1.05]),
    (cartesian, [1.05, 0.95, 1.02]),
    (datum, [1.05, 0.95, 1.02]),
    (ellipse, [1.5, 0.8, 1.1]),
    (distance_correction, [1.05, 0.95, 1.02]),
    (isotropic, [1.1, 0.9]),
    (transversal, [1.1, 0.9, 1.05]),
    (notations, [0.4, -0.8, 1.3]),
    (beam, [1.1, 0.9, 1.05]),
    (sagging_beam, [1.1, 0.9, 1.05]),
    (orientations, [0.4, 0.5, 1.1]),
    (rotated_vectors, [0.4, 0.5, 1.1]),
    (lattice_planes, [1.1, 0.9, 1.05]),
]
