"""Quakes, soils, strata, waves, air, heat pumps, people in rooms, satellites, maps, grids, black holes, spectra of stars."""

import apsg
import astroML.density_estimation
import astroML.linear_model
import astroML.time_series
import astropy.units as u
import discretize
import einsteinpy.coordinates
import einsteinpy.metric
import geojson
import geopack.t89
import groundhog.consolidation.dissipation.onedimensionalconsolidation as consolidation
import groundhog.shallowfoundations.capacity as capacity
import groundhog.siteinvestigation.insitutests.pcpt_correlations as pcpt
import gwpy.timeseries
import hapsira.core.elements
import hapsira.core.iod
import hplib.hplib
import jos3.construction
import jos3.thermoregulation
import mapclassify
import mplstereonet
import numpy as np
import obspy.core
import obspy.geodetics
import obspy.imaging.beachball
import obspy.signal.invsim
import obspy.signal.konnoohmachismoothing
import obspy.signal.trigger
import openpiv.pyprocess
import openpiv.smoothn
import pvanalytics.metrics
import pvmismatch.pvmismatch_lib.pvcell
import s2sphere
import sgp4.ext
import spectral
import turfpy.measurement
import typhon.geodesy
import typhon.physics
import wavespectra
import wavespectra.core.utils
import xarray
import xclim.indices
import xskillscore

POINT = np.array([1.1, 0.9, 1.2])
RNG = np.random.default_rng(19)
TRACE = RNG.standard_normal(128)
IMAGE = RNG.uniform(0.1, 1.0, (6, 7, 4))
STARS = RNG.standard_normal((30, 2))


def quake_filtered(x):
    trace = obspy.core.Trace(data=TRACE * x[0] + x[1] * np.arange(128.0) / 50)
    trace.detrend("linear")
    trace.filter("bandpass", freqmin=0.05, freqmax=0.3, corners=3)
    trace.taper(0.1 * x[2], type="hann")
    return trace.data[::8]


def quake_trigger(x):
    return obspy.signal.trigger.classic_sta_lta_py(
        TRACE * x[0] + x[1] + x[2] * np.cos(np.arange(128.0)), 8, 40
    )[::9]


def quake_spectrum(x):
    frequencies = np.linspace(0.1, 10, 40)
    spectrum = 1.0 / (1.0 + (frequencies / (3 * x[0])) ** 2) * x[1] + 0.1 * x[2]
    smooth = obspy.signal.konnoohmachismoothing.konno_ohmachi_smoothing(
        spectrum, frequencies, 30, normalize=True
    )
    response = obspy.signal.invsim.paz_to_freq_resp([-4.0 + 3j, -4.0 - 3j], [0j, 0j], 60.0 * x[0], 0.01, 32)
    return np.concatenate([smooth[::5], np.abs(response)])


def distance_of_quake(x):
    return np.array(obspy.geodetics.gps2dist_azimuth(10.0 * x[0], 20.0, 30.0 * x[1], -40.0 * x[2]))


def faults_of_quake(x):
    tensor = obspy.imaging.beachball.MomentTensor(0.9 * x[0], -0.4 * x[1], -0.5, 0.3 * x[2], 0.2, 0.1, 0)
    plane = obspy.imaging.beachball.mt2plane(tensor)
    return np.array([plane.strike, plane.dip, plane.rake])


def cone_test(x):
    parts = pcpt.pcpt_normalisations(10.0 * x[0], 0.1 * x[1], 0.2, 100.0 * x[2], 60.0, 40.0, 0.8)
    index = pcpt.behaviourindex_pcpt_robertsonwride(10.0 * x[0], 0.1 * x[1], 100 * x[2], 60.0)
    return np.array([parts["Qt [-]"], parts["Fr [%]"], parts["Bq [-]"], index["Ic [-]"]])


def foundation(x):
    sand = capacity.verticalcapacity_drained_api(50 * x[0], 30.0 * x[1], 9.0 * x[1], 8.0, 4.0 * x[2])
    clay = capacity.verticalcapacity_undrained_api(9.0, 40 * x[0], 2.0 * x[1], 4.0 * x[2], 10.0)
    return np.array([sand["vertical_capacity [kN]"], clay["vertical_capacity [kN]"]])


def consolidation_of_clay(x):
    found = consolidation.consolidation_degree(1e7 * x[0], 3.0 * x[1], 2.0 * x[2])
    return np.array([found["U [pct]"], found["Tv [-]"]])


def strata(x):
    layers = apsg.folset([apsg.fol(120 * x[0], 30), apsg.fol(110, 40 * x[1]), apsg.fol(130, 20 * x[2])])
    mean = layers.ortensor().eigenvalues()
    cross = apsg.fol(120 * x[0], 30).cross(apsg.fol(20, 40 * x[1]))
    unit = apsg.vec(cross).normalized()
    return np.array([*mean, unit.x, unit.y, unit.z])


def stress_of_rock(x):
    stress = apsg.stress([[-8.0 * x[0], 1.0, 0.5], [1.0, -5.0 * x[1], 0.3], [0.5, 0.3, -2.0 * x[2]]])
    plane = apsg.fol(160, 30)
    return np.array([stress.sigma1, stress.sigma3, stress.I2, stress.shear_stress(plane), stress.mean_stress])


def stereonet(x):
    lon, lat = mplstereonet.pole([120.0 * x[0], 30.0 * x[1]], [40.0, 60.0 * x[2]])
    plunge, bearing = mplstereonet.plane_intersection([120.0 * x[0]], [40.0], [30.0], [60.0 * x[2]])
    return np.concatenate([lon, lat, plunge, bearing])


def radiance(x):
    temperatures = 280.0 + 10 * x
    return np.concatenate(
        [
            typhon.physics.planck(2e11 * x[0], temperatures) * 1e16,
            typhon.physics.e_eq_water_mk(temperatures) / 1e3,
            typhon.physics.moist_lapse_rate(np.array([9e4, 8e4, 7e4]) * x[1], temperatures) * 1e3,
            np.ravel(typhon.physics.fresnel(1.0, 1.4 * x[2], 30.0)),
        ]
    )


def place_on_ellipsoid(x):
    place = typhon.geodesy.geodetic2cart(1e4 * x[0], 40 * x[1], 20 * x[2])
    return np.concatenate([np.array(place) / 1e6, np.array(typhon.geodesy.cart2geodetic(*place))])


def heat_in_town(x):
    tas = xarray.DataArray(25.0 + 5 * x, dims="time", attrs={"units": "degC"})
    hurs = xarray.DataArray(60.0 * x, dims="time", attrs={"units": "%"})
    return np.concatenate(
        [xclim.indices.heat_index(tas, hurs).values, xclim.indices.humidex(tas, hurs=hurs).values]
    )


def vapour(x):
    tas = xarray.DataArray(280.0 + 5 * x, dims="time", attrs={"units": "K"})
    return xclim.indices.saturation_vapor_pressure(tas, method="sonntag90").values


def forecast_scores(x):
    seen = xarray.DataArray(np.sin(np.arange(8.0)) * x[0], dims="time")
    told = xarray.DataArray(
        np.sin(np.arange(8.0) + 0.1 * x[1]) + 0.1 * x[2] * np.cos(3 * np.arange(8.0)), dims="time"
    )
    return np.array(
        [
            xskillscore.rmse(seen, told, dim="time").values,
            xskillscore.pearson_r(seen, told, dim="time").values,
            xskillscore.r2(seen, told, dim="time").values,
        ]
    )


def gaussian_forecast(x):
    seen = xarray.DataArray(np.linspace(-1, 1, 5) * x[0], dims="time")
    return xskillscore.crps_gaussian(seen, 0.1 * x[1], 0.5 * x[2], dim="time").values


def sea_state(x):
    freq = np.linspace(0.05, 0.4, 20)
    direction = np.arange(0.0, 360.0, 30.0)
    energy = x[0] * np.exp(-(((freq - 0.12 * x[1]) / 0.05) ** 2))
    spread = np.cos(np.deg2rad(direction - 40) / 2) ** 4 + 0.1 * x[2]
    spectra = xarray.DataArray(
        energy[:, None] * spread, coords={"freq": freq, "dir": direction}, dims=("freq", "dir"), name="efth"
    )
    return np.array([spectra.spec.hs().values, spectra.spec.tm02().values, spectra.spec.dspr().values])


def wave_numbers(x):
    utils = wavespectra.core.utils
    return np.array([utils.celerity(0.1 * x[0], 20.0 * x[1]), utils.wavelen(0.1, 30.0 * x[2])])


def heat_pump(x):
    pump = hplib.hplib.HeatPump(hplib.hplib.get_parameters("Generic", 1, -7, 52, 10000))
    found = pump.simulate(5.0 * x[0], 30.0 * x[1], 5.0 * x[0], mode=1)
    return np.array([found["COP"], found["P_th"] * x[2], found["P_el"], found["T_out"]]).ravel()


def skin(x):
    body = jos3.thermoregulation
    hc = body.conv_coef("standing", 0.3 * x[0], 25.0, 34.0)
    hr = body.rad_coef("standing")
    clothes = np.array([0.6 * x[1]] * 17)
    return np.concatenate(
        [
            body.dry_r(hc, hr, clothes),
            body.wet_r(hc, clothes),
            [jos3.construction.body_surface_area(1.7, 70 * x[2])],
        ]
    )


def solar_cell(x):
    cell = pvmismatch.pvmismatch_lib.pvcell.PVcell(Rs=0.004 * x[0], Rsh=10.0 * x[1], Ee=1.0 * x[2])
    return np.array([cell.calcIcell(0.5), cell.calcVcell(3.0), cell.Isc, cell.Voc, cell.Igen]).ravel()


def solar_plant(x):
    power = np.array([200.0, 400.0, 300.0]) * x[0]
    return np.atleast_1d(
        pvanalytics.metrics.performance_ratio_nrel(
            np.array([500.0, 900.0, 700.0]) * x[1],
            np.array([20.0, 25.0, 22.0]) * x[2],
            np.array([2.0, 3.0, 1.0]),
            power,
            1.0,
        )
    )


def grid_of_earth(x):
    mesh = discretize.TensorMesh([np.array([1.0, 2.0, 1.5]) * x[0], np.array([1.0, 0.5]) * x[1]])
    return np.concatenate([mesh.cell_volumes, mesh.cell_centers.ravel(), mesh.face_areas * x[2]])


def flow_on_grid(x):
    mesh = discretize.TensorMesh([np.ones(4), np.ones(3)])
    conductivity = np.linspace(1.0, 2.0, 12) * x[0] + x[1]
    inner = mesh.get_face_inner_product(conductivity)
    return mesh.face_divergence @ (inner @ np.sin(np.arange(mesh.n_faces) * x[2]))


def black_hole(x):
    coords = einsteinpy.coordinates.BoyerLindquistDifferential(
        t=0.0 * u.s,
        r=10.0 * u.m,
        theta=1.2 * u.rad,
        phi=0.3 * u.rad,
        v_r=0.0 * u.m / u.s,
        v_th=0.0 * u.rad / u.s,
        v_p=0.0 * u.rad / u.s,
    )
    kerr = einsteinpy.metric.Kerr(coords=coords, M=1.0 * u.kg, a=0.4 * u.one)
    found = kerr.metric_covariant(np.array([0.0, 10.0 * x[0], 1.2 * x[1], 0.3 * x[2]]))
    return found.ravel()[1:]  # the first element is 9e16


def orbit(x):
    place, speed = hapsira.core.elements.coe2rv(3.986e5, 7000.0 * x[0], 0.1 * x[1], 0.5 * x[2], 0.3, 0.7, 1.1)
    return np.concatenate([np.ravel(place) / 1e3, np.ravel(speed)])


def transfer_orbit(x):
    one, two = np.array([7000.0, 100.0, 0.0]) * x[0], np.array([-5000.0, 8000.0, 1000.0]) * x[1]
    found = hapsira.core.iod.izzo(3.986e5, one, two, 3000.0 * x[2], 0, True, True, 35, 1e-10)
    return np.ravel(found)


def satellite(x):
    place, speed = [7000.0 * x[0], 500.0, 1000.0], [1.0, 7.0 * x[1], 0.5 * x[2]]
    return np.array(sgp4.ext.rv2coe(place, speed, 398600.8)[:7])


def field_of_magnet(x):
    return np.array(geopack.t89.t89(2, 0.1 * x[0], -6.0 * x[1], 1.0, 2.0 * x[2]))


def heavy_wave(x):
    t = np.arange(256) / 64.0
    series = gwpy.timeseries.TimeSeries(
        np.sin(20 * x[0] * t) * x[1] + 0.1 * x[2] * np.cos(3 * t), sample_rate=64
    )
    return np.concatenate([series.detrend().value[::32], series.rms(1).value])


def deconvolved_stars(x):
    model = astroML.density_estimation.XDGMM(2)
    model.mu = np.array([[0.0, 1.0 * x[0]], [1.0, -1.0]])
    model.alpha = np.array([0.4, 0.6])
    model.V = np.array([np.eye(2) * x[1], np.eye(2) * 0.5 * x[2]])
    return model.logprob_a(STARS[:6], np.array([np.eye(2) * 0.1] * 6)).ravel()


def total_least_squares(x):
    spread = np.array([[[0.1, 0.02], [0.02, 0.2]]] * 30)
    return np.atleast_1d(astroML.linear_model.TLS_logL(x[:2], STARS + x[2], spread))


def light_curve(x):
    t = np.linspace(0, 5, 40)
    fit = astroML.time_series.MultiTermFit(2.3, 2)
    fit.fit(t, np.sin(2.3 * t * x[0]) * x[1], 0.1 + 0.01 * x[2] * t)
    return fit.predict(5, return_phased_times=False)


def classes_of_map(x):
    groups = mapclassify.EqualInterval(np.sort(STARS[:, 0]) * x[0] + x[1] * STARS[:, 1] * 0.01 + x[2], k=4)
    return np.array([*groups.bins, groups.get_tss()])


def spectral_image(x):
    image = IMAGE * x[0] + np.array([0.1, 0.2, 0.3, 0.4]) * x[1]
    return np.concatenate(
        [spectral.spectral_angles(image, IMAGE[:2, 0]).ravel()[:8], spectral.rx(image * x[2]).ravel()[:5]]
    )


def spectral_target(x):
    return spectral.matched_filter(IMAGE + 0.1 * x[2], np.array([0.5 * x[0], 0.6 * x[1], 0.7, 0.1])).ravel()


def cap_of_sphere(x):
    one = s2sphere.LatLng.from_degrees(40.0 * x[0], 20.0 * x[1])
    two = s2sphere.LatLng.from_degrees(10.0, -30.0 * x[2])
    point = one.to_point()
    return np.array(
        [one.get_distance(two).degrees, point[0], point[2], s2sphere.LatLng.from_point(point).lng().degrees]
    )


def way_on_map(x):
    one, two = [
        geojson.Feature(geometry=geojson.Point((10.0 * a, 40.0 * b))) for a, b in ((x[0], x[1]), (1.3, x[2]))
    ]
    middle = turfpy.measurement.midpoint(one, two)
    there = turfpy.measurement.destination(one, 100.0 * x[2], 60.0 * x[0], {"units": "km"})
    return np.array(
        [
            turfpy.measurement.distance(one, two),
            turfpy.measurement.bearing(one, two),
            *middle["geometry"]["coordinates"],
            *there["geometry"]["coordinates"],
        ]
    )


def flow_by_images(x):
    rows, columns = np.mgrid[0:32.0, 0:32.0]
    one = np.exp(-((rows - 16) ** 2 + (columns - 15) ** 2) / 20)
    two = np.exp(-((rows - 16 - 1.3 * x[0]) ** 2 + (columns - 15 - 0.7 * x[1]) ** 2) / 20) * x[2]
    corr = openpiv.pyprocess.fft_correlate_images(one[None], two[None], correlation_method="circular")
    return np.array(openpiv.pyprocess.find_subpixel_peak_position(corr[0]))


def smooth_field(x):
    return openpiv.smoothn.smoothn(np.sin(np.arange(20.0) * x[0]) * x[1] + 0.1 * TRACE[:20], s=2.0 * x[2])[0]


CALLS = [
    (f, POINT)
    for f in (
        quake_filtered, quake_trigger, quake_spectrum, distance_of_quake, faults_of_quake, cone_test, foundation,
        consolidation_of_clay, strata, stress_of_rock, stereonet, radiance, place_on_ellipsoid, heat_in_town, vapour,
        forecast_scores, gaussian_forecast, sea_state, wave_numbers, heat_pump, skin, solar_cell, solar_plant,
        grid_of_earth, flow_on_grid, black_hole, orbit, transfer_orbit, satellite, field_of_magnet, heavy_wave,
        deconvolved_stars, total_least_squares, light_curve, classes_of_map, spectral_image, spectral_target,
        cap_of_sphere, way_on_map, flow_by_images, smooth_field,
    )
]  # fmt: skip
