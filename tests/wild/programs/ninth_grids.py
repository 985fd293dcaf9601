import numpy as np
import opfunu
import sewar
from deap import benchmarks
from pypower.api import (
    bustypes,
    case9,
    dcpf,
    ext2int,
    makeBdc,
    makePTDF,
    makeSbus,
    makeYbus,
    newtonpf,
    ppoption,
    rundcpf,
    runpf,
)
from pypower.dSbus_dV import dSbus_dV


def admittances(x):
    case = ext2int(case9())
    branch = case["branch"].copy()
    branch[:, 3] = branch[:, 3] * x[0]
    return np.abs(makeYbus(case["baseMVA"], case["bus"], branch)[0].toarray())[:3].ravel()


def distribution_factors(x):
    case = ext2int(case9())
    branch = case["branch"].copy()
    branch[:, 3] = branch[:, 3] * (1 + x)
    return np.ravel(makePTDF(case["baseMVA"], case["bus"], branch, 0))


def direct_current(x):
    case = case9()
    case["bus"] = case["bus"].copy()
    case["bus"][[4, 6, 8], 2] = x
    found = rundcpf(case, ppoption(VERBOSE=0, OUT_ALL=0))[0]
    return found["branch"][:, 13]


def power_flow(x):
    case = case9()
    case["bus"] = case["bus"].copy()
    case["bus"][[4, 6, 8], 2] = x
    found = runpf(case, ppoption(VERBOSE=0, OUT_ALL=0, PF_TOL=1e-12))[0]
    return np.concatenate([found["bus"][:, 7], found["branch"][:, 13]])


def newton(x):
    case = ext2int(case9())
    bus, gen = case["bus"].copy(), case["gen"]
    bus[[4, 6, 8], 2] = x
    ref, pv, pq = bustypes(bus, gen)
    y = makeYbus(case["baseMVA"], bus, case["branch"])[0]
    v = newtonpf(
        y,
        makeSbus(case["baseMVA"], bus, gen),
        np.ones(9, complex),
        ref,
        pv,
        pq,
        ppoption(VERBOSE=0, PF_TOL=1e-12),
    )[0]
    return np.abs(v)


def power_jacobian(x):
    case = ext2int(case9())
    y = makeYbus(case["baseMVA"], case["bus"], case["branch"])[0]
    dm, da = dSbus_dV(y, x[:9] * np.exp(1j * x[9:]))
    return np.concatenate([np.abs(dm.toarray())[0], np.real(da.toarray())[3]])


def phase_angles(x):
    case = ext2int(case9())
    b = makeBdc(case["baseMVA"], case["bus"], case["branch"])[0]
    return dcpf(b, x, np.zeros(9), np.array([0]), np.array([1, 2]), np.arange(3, 9))


def named_functions(x):
    of = opfunu.name_based
    return np.array(
        [
            f(ndim=4).evaluate(x)
            for f in (of.Ackley01, of.Alpine01, of.Griewank, of.Levy03, of.Salomon, of.Qing)
        ]
    )


def named_pairs(x):
    of = opfunu.name_based
    return np.array(
        [f().evaluate(x) for f in (of.Beale, of.Branin01, of.GoldsteinPrice, of.DropWave, of.Easom)]
    )


def competition(x):
    return np.array(
        [opfunu.cec_based.F12014(ndim=10).evaluate(x) / 1e8, opfunu.cec_based.F92014(ndim=10).evaluate(x)]
    )


def evolutionary(x):
    return np.array([f(x)[0] for f in (benchmarks.ackley, benchmarks.griewank, benchmarks.rastrigin, benchmarks.schaffer,
                                       benchmarks.bohachevsky, benchmarks.rosenbrock, benchmarks.h1)])  # fmt: skip


def objectives(x):
    return np.array(
        [
            *benchmarks.zdt1(x),
            *benchmarks.zdt3(x),
            *benchmarks.dtlz2(x, 3),
            *benchmarks.kursawe(x),
            *benchmarks.fonseca(x),
        ]
    )


image = 120 + 60 * np.cos(np.arange(24.0))[:, None] * np.sin(0.7 * np.arange(24.0))


def similarity(x):
    other = image + x[0] * np.sin(np.arange(24.0)) + x[1]
    return np.array([*sewar.ssim(image, other, ws=7, MAX=255), sewar.uqi(image, other)])


def spectral_angle(x):
    return sewar.sam(
        np.stack([image, image.T + 3, 2 * image], axis=-1),
        np.stack([image, x[0] * image.T, image + x[1]], axis=-1),
    )


def global_errors(x):
    other = image + x[0] * np.sin(np.arange(24.0)) + x[1]
    return np.array([sewar.rmse(image, other), sewar.psnr(image, other, MAX=255), sewar.ergas(image, other), sewar.rase(image, other),
                     sewar.rmse_sw(image, other)[0]])  # fmt: skip


def information_fidelity(x):
    return sewar.vifp(image, image + x[0] * np.sin(np.arange(24.0)) + x[1] * np.cos(np.arange(24.0))[:, None])


four = np.array([0.3, 0.7, 0.45, 0.2])
CALLS = [
    (admittances, np.array([1.1])),
    (distribution_factors, 0.1 * np.cos(np.arange(9.0))),
    (direct_current, np.array([90.0, 100.0, 125.0])),
    (power_flow, np.array([90.0, 100.0, 125.0])),
    (newton, np.array([90.0, 100.0, 125.0])),
    (power_jacobian, np.concatenate([1 + 0.02 * np.cos(np.arange(9.0)), 0.1 * np.sin(np.arange(9.0))])),
    (phase_angles, np.cos(np.arange(9.0))),
    (named_functions, four),
    (named_pairs, np.array([1.3, 0.4])),
    (competition, 10 * np.cos(np.arange(10.0))),
    (evolutionary, four),
    (objectives, four),
    (similarity, np.array([5.0, 2.0])),
    (spectral_angle, np.array([0.7, 3.0])),
    (global_errors, np.array([5.0, 2.0])),
    (information_fidelity, np.array([5.0, 2.0])),
]
