import hcipy as hc
import numpy as np
import pythtb
from optiland.optic import Optic
from optiland.rays import RealRays

grid = hc.make_pupil_grid(16)
focal = hc.make_focal_grid(4, 3)
aperture = hc.make_circular_aperture(1.0)(grid)
modes = hc.make_zernike_basis(4, 1.0, grid, 2)


def point_spread(x):
    propagate = hc.FraunhoferPropagator(grid, focal)
    wavefront = hc.Wavefront(aperture * np.exp(1j * modes.linear_combination(x)))
    return propagate(wavefront).power


def strehl(x):
    propagate = hc.FraunhoferPropagator(grid, focal)
    reference = propagate(hc.Wavefront(aperture)).intensity
    image = propagate(
        hc.Wavefront(aperture * np.exp(1j * hc.Field(modes.transformation_matrix.dot(x), grid)))
    ).intensity
    return hc.get_strehl_from_focal(image, reference)


def fresnel(x):
    wavefront = hc.Wavefront(hc.Field(np.exp(-x[0] * grid.x**2 - x[1] * grid.y**2), grid), wavelength=0.1)
    return hc.AngularSpectrumPropagator(grid, 0.5)(wavefront).intensity


def zernikes(x):
    return hc.zernike(3, 1, D=2.5, grid=hc.CartesianGrid(hc.UnstructuredCoords([x[:3], x[3:]])))


def turbulence(x):
    f = hc.phase_covariance_von_karman(x[0], x[1])
    return f(hc.CartesianGrid(hc.UnstructuredCoords([np.array([0.1, 0.4]), np.array([0.2, -0.3])])))


def fried(x):
    return np.array([1e13 * hc.Cn_squared_from_fried_parameter(x[0]), hc.fried_parameter_to_seeing(x[0]),
                     hc.seeing_to_fried_parameter(x[1])])  # fmt: skip


def gaussian_beam(x):
    beam = hc.GaussianBeam(x[0], x[1], 1e-6)
    return np.array([beam.z, 1e3 * beam.w, beam.R])


def polarised(x):
    plate = hc.LinearRetarder(x[0], x[1])
    wavefront = hc.Wavefront(aperture, input_stokes_vector=np.array([1.0, 0.3, 0.2, 0.1]))
    return plate(wavefront).Q


def profile(x):
    return hc.radial_profile(hc.Field(np.resize(x, grid.size) ** 2, grid), 0.2)[1]


def singlet(x):
    lens = Optic()
    lens.surfaces.add(index=0, thickness=np.inf)
    lens.surfaces.add(index=1, radius=x[0], thickness=7.0, material="N-SF11", is_stop=True)
    lens.surfaces.add(index=2, radius=x[1], thickness=21.5)
    lens.surfaces.add(index=3)
    lens.set_aperture(aperture_type="EPD", value=10.0)
    lens.fields.set_type(field_type="angle")
    lens.fields.add(y=0)
    lens.wavelengths.add(value=0.5, is_primary=True)
    return lens


def focal_lengths(x):
    p = singlet(x).paraxial
    return np.array([p.f2(), p.f1(), p.FNO()]).ravel()


def traced(x):
    rays = singlet(x).trace(Hx=0, Hy=0, wavelength=0.5, num_rays=3, distribution="line_y")
    return np.concatenate([rays.y, rays.z])


def seidel(x):
    return singlet(x).aberrations.seidels()


def free_rays(x):
    rays = RealRays(x[:2], x[2:4], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 1.0], [1.0, 1.0], [0.5, 0.5])
    rays.rotate_x(x[4])
    rays.rotate_z(0.2)
    return np.concatenate([rays.x, rays.y, rays.z])


def graphene(x):
    model = pythtb.tb_model(2, 2, [[1.0, 0.0], [0.5, 0.8660254]], [[1 / 3, 1 / 3], [2 / 3, 2 / 3]])
    model.set_onsite([-x[0], x[0]])
    model.set_hop(x[1], 0, 1, [0, 0])
    model.set_hop(x[1], 1, 0, [1, 0])
    model.set_hop(x[1], 1, 0, [0, 1])
    return model


def bands(x):
    return graphene(x).solve_all([[0.1, 0.2], [0.3, 0.15]])


def band_at(x):
    model = pythtb.tb_model(1, 1, [[1.0]], [[0.0]])
    model.set_hop(-1.0, 0, 0, [1])
    return model.solve_one([x[0]])


def berry_phase(x):
    array = pythtb.wf_array(graphene(x), [9, 9])
    array.solve_on_grid([0.03, 0.02])
    return array.berry_phase([0], 1)


def finite_chain(x):
    model = pythtb.tb_model(1, 1, [[1.0]], [[0.0], [0.5]])
    model.set_hop(x[0], 0, 1, [0])
    model.set_hop(x[1], 1, 0, [1])
    return model.cut_piece(4, 0).solve_all()


CALLS = [
    (point_spread, np.array([0.1, 0.2, -0.3, 0.15])),
    (strehl, np.array([0.1, 0.2, -0.3, 0.15])),
    (fresnel, np.array([4.0, 6.0])),
    (zernikes, np.array([0.1, 0.4, -0.3, 0.2, 0.5, 0.6])),
    (turbulence, np.array([0.15, 20.0])),
    (fried, np.array([0.15, 4e-6])),
    (gaussian_beam, np.array([1e-3, 2.0])),
    (polarised, np.array([0.5, 0.3])),
    (profile, np.array([0.3, 0.7, 1.1, -0.4, 0.9])),
    (focal_lengths, np.array([50.0, -60.0])),
    (traced, np.array([50.0, -60.0])),
    (seidel, np.array([50.0, -60.0])),
    (free_rays, np.array([0.3, 0.7, 1.1, -0.4, 0.2])),
    (bands, np.array([0.4, -1.0])),
    (band_at, np.array([0.13])),
    (berry_phase, np.array([0.4, -1.0])),
    (finite_chain, np.array([0.7, -1.2])),
]
