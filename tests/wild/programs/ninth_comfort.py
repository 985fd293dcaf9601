import numpy as np
from pygasflow import fanno, isentropic, rayleigh, shockwave, solvers
from pythermalcomfort import models
from refet import Daily, Hourly, calcs


def predicted_vote(x):
    found = models.pmv_ppd_iso(x[0], x[1], x[2], x[3], 1.2, 0.5, limit_inputs=False, round_output=False)
    return np.array([found.pmv, found.ppd])


def american_vote(x):
    found = models.pmv_ppd_ashrae(x[0], x[1], x[2], x[3], 1.2, 0.5, limit_inputs=False, round_output=False)
    return np.array([found.pmv, found.ppd])


def universal_index(x):
    return models.utci(x[0], x[1], x[2], x[3], limit_inputs=False, round_output=False).utci


def standard_temperature(x):
    return models.set_tmp(x[0], x[1], x[2], x[3], 1.2, 0.5, limit_inputs=False, round_output=False).set


def two_nodes(x):
    found = models.two_nodes_gagge(x[0], x[1], x[2], x[3], 1.2, 0.5, round_output=False)
    return np.array([found.e_skin, found.t_core, found.m_bl, found.set])


def wind_chill(x):
    return np.array(
        [
            models.wci(x[0], x[2], round_output=False).wci,
            models.wind_chill_temperature(x[1], x[3], round_output=False).wct,
        ]
    )


def heat_indices(x):
    return np.array([models.humidex(x[0], x[3], round_output=False).humidex,
                     models.heat_index_rothfusz(x[0], x[3], round_output=False, limit_inputs=False).hi,
                     models.at(x[0], x[3], x[2], round_output=False).at, models.discomfort_index(x[0], x[3]).di,
                     models.net(x[0], x[3], x[2], round_output=False).net])  # fmt: skip


def wet_bulb_globe(x):
    return models.wbgt(x[0], x[1], x[2], with_solar_load=True, round_output=False).wbgt


def heat_strain(x):
    found = models.phs(x[0], x[1], x[2], x[3], 2.5, 0.5, posture="standing", duration=20, round_output=False)
    return np.array([found.t_re, found.t_sk, found.sweat_loss_g])


def daily_reference(x):
    day = Daily(tmin=x[0], tmax=x[1], ea=x[2], rs=x[3], uz=x[4], zw=3, elev=1208.5, lat=39.4575, doy=182)
    return np.concatenate([day.etr(), day.eto()])


def hourly_reference(x):
    hour = Hourly(
        tmean=x[0],
        ea=x[1],
        rs=x[2],
        uz=x[3],
        zw=3,
        elev=1208.5,
        lat=39.4575,
        lon=-118.77388,
        doy=182,
        time=18,
    )
    return np.concatenate([hour.etr(), hour.eto()])


def radiation(x):
    lat = np.array([x[0]])
    ra = calcs.ra_daily(lat, 120)
    rso = calcs.rso_daily(ra, np.array([x[1]]), np.array([x[2]]), 120, lat)
    return np.concatenate(
        [ra, rso, calcs.rnl_daily(x[3], 12.0, np.array([x[1]]), calcs.fcd_daily(0.6 * ra, rso))]
    )


def isentropic_ratios(x):
    return np.array([*isentropic.get_ratios_from_mach(x[0], x[1]), isentropic.m_from_critical_area_ratio(x[2], "super", x[1]),
                     isentropic.m_from_prandtl_meyer_angle(x[3], x[1])])  # fmt: skip


def ducts(x):
    return np.array([fanno.critical_friction_parameter(x[0], x[1]), fanno.m_from_critical_friction(0.3, "sub", x[1]),
                     fanno.m_from_critical_entropy(0.2, "super", x[1]), rayleigh.critical_total_temperature_ratio(x[0], x[1]),
                     rayleigh.m_from_critical_total_pressure_ratio(1.2, "sub", x[1])])  # fmt: skip


def oblique(x):
    return np.concatenate([np.ravel(shockwave.beta_from_mach_theta(x[0], x[1])["weak"]),
                           np.ravel(shockwave.oblique_mach_downstream(x[0], theta=x[1])),
                           np.ravel(shockwave.theta_from_mach_beta(x[0], x[2]))])  # fmt: skip


def normal_shock(x):
    return np.array([shockwave.rayleigh_pitot_formula(x[0]), shockwave.total_pressure_ratio(x[0]), shockwave.mach_downstream(x[0]),
                     shockwave.m1_from_total_pressure_ratio(x[1]), shockwave.entropy_difference(x[0])])  # fmt: skip


def shock_solver(x):
    return np.ravel(solvers.shockwave_solver("mu", x[0], "theta", x[1]))


def deflections(x):
    return np.ravel(shockwave.max_theta_from_mach(x))


climate = np.array([26.0, 27.0, 0.2, 55.0])
CALLS = [
    (predicted_vote, climate),
    (american_vote, climate),
    (universal_index, np.array([26.0, 31.0, 2.0, 55.0])),
    (standard_temperature, climate),
    (two_nodes, climate),
    (wind_chill, np.array([-5.0, -12.0, 3.0, 20.0])),
    (heat_indices, np.array([31.0, 30.0, 1.3, 61.0])),
    (wet_bulb_globe, np.array([25.0, 32.0, 28.0])),
    (heat_strain, np.array([40.0, 41.0, 0.31, 33.0])),
    (daily_reference, np.array([9.0, 33.0, 1.2, 29.0, 3.1])),
    (hourly_reference, np.array([32.0, 1.2, 2.9, 3.1])),
    (radiation, np.array([0.7, 1.2, 88.0, 27.0])),
    (isentropic_ratios, np.array([1.8, 1.33, 1.9, 17.0])),
    (ducts, np.array([0.6, 1.37])),
    (oblique, np.array([2.6, 14.0, 41.0])),
    (normal_shock, np.array([2.2, 0.61])),
    (shock_solver, np.array([2.6, 14.0])),
    (deflections, np.array([1.7, 2.4, 3.6])),
]
