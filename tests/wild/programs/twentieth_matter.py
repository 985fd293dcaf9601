"""Gases in pores, gratings, wells, beams, robots, arrays of antennas, rooms, wings, inverse problems."""

import act.utils
import BaselineRemoval
import bumps.names
import chemotools.baseline
import chemotools.derivative
import chemotools.scatter
import chemotools.smooth
import cuqi
import ezyrb
import grcwa
import GTC
import hapi
import indeterminatebeam
import inkstone
import mogp_emulator
import molmass
import nara_wpe.wpe
import neuralfoil
import noisyopt
import numpy as np
import nutils.function
import nutils.mesh
import odl
import petbox.dca
import pvlib
import pyargus.beamform
import pyargus.directionEstimation
import pygaps.modelling
import pyphysim.channels.pathloss
import pyphysim.subspace.metrics
import pyphysim.util.misc
import pyrestoolbox.gas
import pyrestoolbox.oil
import pyroomacoustics
import pystra
import rcwa
import rdtools
import scipy.optimize
import tinyik
import UQpy.distributions
import visual_kinematics.RobotSerial

POINT = np.array([1.1, 0.9, 1.2])
RNG = np.random.default_rng(20)
WAVE = RNG.standard_normal(120)
SPECTRUM = np.exp(-(((np.arange(60.0) - 25) / 5) ** 2)) + 0.02 * np.arange(60.0)


def isotherms(x):
    pressure = np.linspace(0.1, 2.0, 6)
    found = []
    for name, parameters in {
        "Toth": {"K": 2 * x[0], "n_m": 4 * x[1], "t": 0.8 * x[2]},
        "DSLangmuir": {"n_m1": 2 * x[0], "K1": 3.0, "n_m2": 1.5, "K2": 0.4 * x[2]},
        "Quadratic": {"n_m": 3 * x[0], "Ka": 0.7 * x[1], "Kb": 0.2 * x[2]},
    }.items():
        model = pygaps.modelling.get_isotherm_model(name, parameters=parameters)
        found += [model.loading(pressure), model.spreading_pressure(1.5 * x[1])]
    return np.hstack(found)


def pressure_of_loading(x):
    model = pygaps.modelling.get_isotherm_model(
        "Toth", parameters={"K": 2 * x[0], "n_m": 4 * x[1], "t": 0.8 * x[2]}
    )
    virial = pygaps.modelling.get_isotherm_model(
        "Virial", parameters={"K": 5 * x[0], "A": 0.1, "B": 0.1 * x[1], "C": 0.02}
    )
    return np.hstack([model.pressure(1.5), virial.pressure(1.2 * x[2])])


def grating(x):
    g = grcwa.obj(11, [1.5, 0.0], [0.0, 1.5], 1.0 * x[0], 0.1, 0.0, verbose=0)
    g.Add_LayerUniform(0.1, 1.0)
    g.Add_LayerGrid(0.3 * x[1], 12, 12)
    g.Add_LayerUniform(0.1, 2.25)
    g.Init_Setup()
    pattern = np.ones((12, 12)) * 4.0 * x[2]
    pattern[3:8, 2:9] = 1.0
    g.GridLayer_geteps(pattern.ravel())
    g.MakeExcitationPlanewave(1, 0, 0, 0)
    return np.array(g.RT_Solve(normalize=1))


def striped_layer(x):
    s = inkstone.Inkstone()
    s.lattice = 1.0
    s.num_g = 7
    s.frequency = 0.6 * x[0]
    s.AddMaterial(name="glass", epsilon=3.0 * x[1])
    s.AddLayer(name="above", thickness=0, material_background="vacuum")
    s.AddLayer(name="stripes", thickness=0.4 * x[2], material_background="vacuum")
    s.AddPattern1D(layer="stripes", material="glass", width=0.4, pattern_name="line")
    s.AddLayer(name="below", thickness=0, material_background="vacuum")
    s.SetExcitation(theta=10, phi=0, s_amplitude=1, p_amplitude=0)
    return np.array(s.GetPowerFlux("below"))


def films(x):
    stack = rcwa.LayerStack(
        rcwa.Layer(n=1.5 * x[0], thickness=0.2 * x[1]),
        rcwa.Layer(n=2.1, thickness=0.3),
        transmission_layer=rcwa.Layer(n=1.45 * x[2]),
    )
    found = rcwa.Solver(stack, rcwa.Source(wavelength=0.6, theta=0.2)).solve()
    return np.array([found["RTot"], found["TTot"]])


def declining_well(x):
    t = np.geomspace(10.0, 3000.0, 7)
    parts = [
        petbox.dca.MH(1000 * x[0], 0.8, 1.2 * x[1], 0.06),
        petbox.dca.PLE(900 * x[0], 0.01, 1e-5, 0.6 * x[2]),
    ]
    return np.concatenate([part.cum(t) / 1e4 for part in parts] + [part.rate(t) / 1e2 for part in parts])


def shale_well(x):
    t = np.geomspace(10.0, 3000.0, 7)
    parts = [
        petbox.dca.THM(750 * x[0], 0.8, 2.0, 0.5 * x[1], 30.0), petbox.dca.SE(800 * x[1], 60.0 * x[2], 0.5),
        petbox.dca.Duong(700.0, 1.5 * x[2], 1.2),
    ]  # fmt: skip
    return np.concatenate([part.rate(t) / 1e2 for part in parts] + [part.beta(t) for part in parts])


def natural_gas(x):
    p, t, sg = 2000.0 * x[0], 180.0 * x[1], 0.75 * x[2]
    return np.hstack(
        [
            f(p=p, degf=t, sg=sg)
            for f in (pyrestoolbox.gas.gas_z, pyrestoolbox.gas.gas_ug, pyrestoolbox.gas.gas_bg)
        ]
    )


def crude_oil(x):
    api, t = 35.0 * x[0], 180.0 * x[1]
    bubble = pyrestoolbox.oil.oil_pbub(api=api, degf=t, rsb=500.0 * x[2], sg_g=0.7, sg_sp=0.7)
    rs = pyrestoolbox.oil.oil_rs(api=api, degf=t, sg_sp=0.7, p=1000.0, pb=bubble, rsb=500.0 * x[2])
    return np.array([bubble / 1e3, rs / 100, pyrestoolbox.oil.oil_viso(1000.0, api, t, bubble, rs)])


def beam_on_supports(x):
    beam = indeterminatebeam.Beam(7.0, E=2e11, I=9e-6)
    beam.add_supports(
        indeterminatebeam.Support(0.0, (1, 1, 0)), indeterminatebeam.Support(4.0, (0, 1, 0)),
        indeterminatebeam.Support(7.0, (0, 1, 0)),
    )  # fmt: skip
    beam.add_loads(
        indeterminatebeam.PointLoadV(float(-1000.0 * x[0]), 2.0),
        indeterminatebeam.UDLV(float(-500.0 * x[1]), (3.0, 6.0)),
    )
    beam.analyse()
    return np.array([float(beam.get_reaction(c, "y")) for c in (0.0, 4.0, 7.0)])


def reliability_index(x):
    limit = pystra.LimitState(lambda load, strength: strength - load * (1 + 0.1 * load))
    model = pystra.StochasticModel()
    model.addVariable(pystra.Lognormal("strength", 8.0 * x[0], 1.0))
    model.addVariable(pystra.Normal("load", 2.0 * x[1], 0.4 * x[2]))
    options = pystra.AnalysisOptions()
    options.setPrintOutput(False)
    form = pystra.Form(stochastic_model=model, limit_state=limit, analysis_options=options)
    form.run()
    return np.array([np.ravel(form.getBeta())[0]])


def copulas(x):
    pairs = np.array([[0.2, 0.4], [0.7, 0.5], [0.9, 0.3]]) * 0.85 * x[2]
    laws = [UQpy.distributions.Clayton(theta=1.5 * x[0]), UQpy.distributions.Frank(theta=3.0 * x[1])]
    return np.concatenate([law.evaluate_cdf(unit_uniform_samples=pairs) for law in laws])


def laws_of_uq(x):
    gamma = UQpy.distributions.Gamma(a=2.0, loc=0.0, scale=1.0)
    gamma.parameters = {"a": 2.0 * x[0], "loc": 0.0, "scale": x[1]}
    return np.concatenate([gamma.log_pdf(np.array([0.5, 1.5]) * x[2]), gamma.cdf(np.array([0.5, 1.5]))])


def emulator(x):
    inputs = np.linspace(0, 1, 6)[:, None]
    gp = mogp_emulator.GaussianProcess(inputs, np.sin(4 * inputs[:, 0] * x[0]) * x[1], nugget=1e-3)
    gp.fit(np.array([2.0 * x[2], 0.3]))
    found = gp.predict(np.array([[0.25], [0.6]]))
    return np.concatenate([found.mean, found.unc, [gp.logposterior(gp.theta.get_data())]])


def arm(x):
    robot = tinyik.Actuator(["z", [1.0 * x[0], 0.0, 0.0], "y", [0.8 * x[1], 0.0, 0.1], "x", [0.0, 0.3, 0.2]])
    robot.angles = np.array([0.3, 0.5, -0.2]) * x[2]
    return robot.ee


def arm_reaches(x):
    robot = tinyik.Actuator(["z", [1.0, 0.0, 0.0], "z", [0.8, 0.0, 0.0]])
    robot.ee = np.array([1.1 * x[0], 0.7 * x[1], 0.0])
    return robot.angles


def six_axes(x):
    table = np.array(
        [[0.16, 0, 0.0, np.pi / 2], [0, 0.26, 0, 0], [0.05, 0.02, 0.0, np.pi / 2], [0.24, 0, 0, -np.pi / 2]]
    )
    robot = visual_kinematics.RobotSerial.RobotSerial(table * np.array([x[0], x[1], 1.0, 1.0]))
    frame = robot.forward(np.array([0.2, -0.5, 0.4, 0.3]) * x[2])
    return np.concatenate([frame.t_3_1.ravel(), frame.r_3_3.ravel(), robot.jacobian.ravel()])


def reduced_order(x):
    snapshots = np.array([np.exp(-np.linspace(0, 2, 15) * p * x[0]) * x[1] for p in (0.5, 1.0, 1.5, 2.0)])
    database = ezyrb.Database(np.array([[0.5], [1.0], [1.5], [2.0]]), snapshots)
    model = ezyrb.ReducedOrderModel(database, ezyrb.POD("svd", rank=3), ezyrb.RBF()).fit()
    return np.ravel(model.predict(np.array([[1.2 * x[2]]])))[::4]


def antennas(x):
    vectors = pyargus.directionEstimation.gen_ula_scanning_vectors(
        0.5 * np.arange(4) * x[0], np.arange(0.0, 181.0, 30.0)
    )
    z = (WAVE[:80] + 1j * WAVE[40:120]).reshape(4, 20)
    r = pyargus.directionEstimation.corr_matrix_estimate((z * x[1] + np.cos(np.arange(20.0) * x[2])).T)
    return np.concatenate(
        [
            np.abs(f(r, vectors))
            for f in (pyargus.directionEstimation.DOA_Bartlett, pyargus.directionEstimation.DOA_Capon)
        ]
    )


def beam_former(x):
    s = np.exp(1j * np.pi * np.arange(4) * np.cos(0.8 * x[0]))[:, None]
    noise = np.eye(4) * x[1] + 0.1 * x[2] * np.ones((4, 4))
    w = pyargus.beamform.optimal_Wiener_beamform(noise, s)
    return np.concatenate([np.real(w), np.imag(w)])


def path_losses(x):
    free = pyphysim.channels.pathloss.PathLossFreeSpace()
    free.fc = 900.0 * x[0]
    general = pyphysim.channels.pathloss.PathLossGeneral(3.0 * x[1], 120.0)
    d = np.array([0.5, 1.0, 3.0]) * x[2]
    return np.concatenate(
        [free.calc_path_loss_dB(d), general.calc_path_loss_dB(d), general.calc_path_loss(d) * 1e12]
    )


def subspaces(x):
    a, b = WAVE[:10].reshape(5, 2), WAVE[10:20].reshape(5, 2) * x[:2] + x[2]
    angles = pyphysim.subspace.metrics.calc_principal_angles(a, b)
    return np.array([*angles, pyphysim.subspace.metrics.calc_chordal_distance(a, b)])


def whitening(x):
    c = np.array([[2.0 * x[0], 0.4, 0.1], [0.4, 1.5 * x[1], 0.2], [0.1, 0.2, x[2]]])
    white = pyphysim.util.misc.calc_whitening_matrix(c)
    return np.abs(np.concatenate([white.ravel(), pyphysim.util.misc.calc_decorrelation_matrix(c).ravel()]))


def dereverberation(x):
    y = (WAVE[:90] + 1j * np.roll(WAVE, 7)[:90]).reshape(1, 2, 45) * x[0] + x[1] * np.cos(
        np.arange(45.0) * x[2]
    )
    clean = nara_wpe.wpe.wpe_v8(y, taps=2, delay=1, iterations=2)
    return np.abs(clean).ravel()[::7]


def echoes_in_room(x):
    room = pyroomacoustics.ShoeBox(
        [4.0, 3.0, 2.5], fs=8000, materials=pyroomacoustics.Material(0.3), max_order=2
    )
    room.add_source([1.0, 1.5, 1.2])
    room.add_microphone([2.5, 2.0, 1.0])
    return np.convolve(WAVE * x[0] + x[1], pyroomacoustics.hann(9))[::20] * x[2] * room.get_volume()


def sound_tools(x):
    directions = pyroomacoustics.doa.spher2cart(0.7 * x[0], 0.9 * x[1])
    rate = pyroomacoustics.bandpass_filterbank([(100, 300)], fs=2000, order=2)[0]
    spectrum = pyroomacoustics.transform.stft.analysis(WAVE * x[2], 32, 16)
    return np.concatenate([np.ravel(directions), np.abs(spectrum).ravel()[::11], np.ravel(rate)[:2]])


def wing_section(x):
    form = {
        "lower_weights": -0.15 * x[0] * np.ones(8), "upper_weights": 0.2 * x[1] * np.ones(8), "TE_thickness": 0.01,
        "leading_edge_weight": 0.0,
    }  # fmt: skip
    found = neuralfoil.get_aero_from_kulfan_parameters(form, alpha=4.0 * x[2], Re=1e6, model_size="small")
    return np.hstack([found["CL"], found["CM"], 100 * found["CD"]])


def total_variation(x):
    space = odl.uniform_discr([0, 0], [1, 1], [6, 5], dtype="float64")
    image = space.element(WAVE[:30].reshape(6, 5) * x[0] + x[1])
    gradient = odl.Gradient(space)(image)
    return np.array([image.norm(), gradient.norm(), odl.Laplacian(space)(image).inner(image) * x[2]])


def smoothing_operator(x):
    space = odl.rn(3)
    matrix = odl.MatrixOperator(WAVE[:9].reshape(3, 3))
    point = space.element(x)
    return np.concatenate([matrix(point).asarray(), matrix.adjoint(matrix(point) * 2 - point).asarray()])


def posterior(x):
    a = WAVE[:12].reshape(4, 3)
    prior = cuqi.distribution.Gaussian(np.zeros(3), 0.5)
    data = cuqi.distribution.Gaussian(a @ x, 0.1)
    field = cuqi.distribution.GMRF(np.zeros(3), 4.0)
    return np.hstack([prior.logd(x), data.logpdf(WAVE[20:24]), field.logd(x)])


def raman_baselines(x):
    spectrum = SPECTRUM * x[0] + 0.1 * x[1] * np.sin(np.arange(60.0) / 9 * x[2])
    return BaselineRemoval.BaselineRemoval(spectrum).ZhangFit(lambda_=50, porder=1, repitition=3)[::6]


def spectra_prepared(x):
    spectra = np.array(
        [SPECTRUM * x[0], SPECTRUM**1.2 * x[1], SPECTRUM + 0.1 * x[2] * np.cos(np.arange(60.0))]
    )
    parts = [
        chemotools.scatter.StandardNormalVariate(), chemotools.scatter.MultiplicativeScatterCorrection(),
        chemotools.derivative.NorrisWilliams(window_size=5, gap_size=3), chemotools.smooth.MeanFilter(window_size=5),
        chemotools.baseline.LinearCorrection(),
    ]  # fmt: skip
    return np.concatenate([part.fit_transform(spectra).ravel()[::17] for part in parts])


def spectra_smooth(x):
    spectra = np.array([SPECTRUM * x[0], SPECTRUM**1.2 * x[1] + 0.1 * x[2] * np.cos(np.arange(60.0))])
    parts = [
        chemotools.baseline.AsLs(lam=1e2, penalty=0.01, nr_iterations=5), chemotools.smooth.WhittakerSmooth(lam=10.0),
        chemotools.derivative.SavitzkyGolay(window_size=7, polynomial_order=2, derivate_order=1),
    ]  # fmt: skip
    return np.concatenate([part.fit_transform(spectra).ravel()[::13] for part in parts])


def resistance(x):
    voltage, current = GTC.ureal(5.0 * x[0], 0.02), GTC.ureal(0.02 * x[1], 1e-4 * x[2])
    ohms = GTC.result(voltage / current)
    return np.array([GTC.value(ohms), GTC.uncertainty(ohms)])


def spectral_line(x):
    grid = np.linspace(1000.0, 1001.0, 9)
    return np.concatenate(
        [
            hapi.PROFILE_VOIGT(1000.5, 0.05 * x[0], 0.06 * x[1], 0.01 * x[2], grid),
            hapi.PROFILE_SDVOIGT(1000.5, 0.05 * x[0], 0.06 * x[1], 0.005, 0.01 * x[2], 0.0, grid),
        ]
    )


def mass_of_sample(x):
    masses = [molmass.Formula(f).mass for f in ("C8H10N4O2", "H2O", "NaCl")]
    return np.array(
        [molmass.Formula("D2O").isotope.mass * x[0], np.dot(masses, x), masses[0] / (x[1] + x[2])]
    )


def module_power(x):
    light = 600.0 * x
    cell = pvlib.temperature.sapm_cell(light, 20.0, 2.0, -3.56, -0.075, 3.0)
    return rdtools.normalization.pvwatts_dc_power(light, 5.0, cell, gamma_pdc=-0.004 * x[0])


def brightness(x):
    return np.array(
        [act.utils.radiance_utils.planck_converter(wnum=900.0 * x[0], temperature=280.0 * x[1]),
         act.utils.radiance_utils.planck_converter(wnum=900.0 * x[0], radiance=80.0 * x[2])]
    ).ravel()  # fmt: skip


def fitted_curve(x):
    curve = bumps.names.Curve(
        lambda t, a, b: a * np.exp(-b * t), np.arange(5.0), WAVE[:5], 0.3, a=x[0], b=x[1]
    )
    problem = bumps.names.FitProblem(curve)
    return np.concatenate([curve.residuals(), [curve.nllf() * x[2]]]) if problem else x


def heat_in_bar(x):
    domain, geometry = nutils.mesh.rectilinear([np.linspace(0, 1, 6)])
    basis = domain.basis("std", degree=1)
    gradients = nutils.function.outer(nutils.function.grad(basis, geometry)).sum(-1)
    stiffness = domain.integrate(gradients * nutils.function.J(geometry), degree=2).export("dense")
    load = domain.integrate(basis * nutils.function.J(geometry), degree=2)
    return np.linalg.solve(stiffness * x[0] + np.eye(6) * x[1], np.asarray(load) * x[2])


def wells_and_prices(x):
    t = petbox.dca.get_time(30.0, 3000.0, 12)
    well = petbox.dca.MH(1000 * x[0], 0.8, 1.1 * x[1], 0.06)
    cash = well.interval_vol(t) * 60.0 * x[2] * np.exp(-0.1 * t / 365.25)
    rate = scipy.optimize.brentq(lambda r: np.sum(cash * (1 + r) ** (-t / 365.25)) - 5e6, 0.01, 50.0)
    return np.array([np.sum(cash) / 1e6, rate])


def compass(x):
    found = noisyopt.minimizeCompass(
        lambda p: np.sum((p - x) ** 2), x0=np.full(3, 0.03), deltatol=0.1, paired=False
    )
    return np.array([found.fun + np.sum(x**2)])


CALLS = [
    (f, POINT)
    for f in (
        isotherms, pressure_of_loading, grating, striped_layer, films,
        declining_well, shale_well, natural_gas, crude_oil, beam_on_supports, reliability_index, copulas, laws_of_uq,
        emulator, arm, arm_reaches, six_axes, reduced_order, antennas, beam_former, path_losses, subspaces, whitening,
        dereverberation, echoes_in_room, sound_tools, wing_section, total_variation, smoothing_operator, posterior,
        raman_baselines, spectra_prepared, spectra_smooth, resistance, spectral_line, mass_of_sample,
        module_power, brightness, fitted_curve, heat_in_bar, wells_and_prices, compass,
    )
]  # fmt: skip
