import dcor
import numpy as np
from pydmd import DMD, DMDc, HankelDMD

rng = np.random.default_rng(3)
samples = rng.normal(size=(8, 2))
other = rng.normal(size=(8, 2)) + 0.5 * samples
ratio = np.array([1.0, 0.8])
times = np.arange(12) * 0.3
waves = np.stack([np.cos(times), np.sin(times), np.cos(2 * times) + 0.1 * times])


def eigenvalues(x):
    model = DMD(svd_rank=2).fit(waves[:2] * x[:, None] + 0.1 * waves[2] * x[0])
    found = np.sort_complex(model.eigs)
    return np.concatenate([found.real, found.imag])


def reconstructed(x):
    return DMD(svd_rank=2).fit(waves[:2] * x[:, None] + 0.1 * waves[2] * x[0]).reconstructed_data.real


def delayed(x):
    return HankelDMD(svd_rank=3, d=3).fit(waves[:1] * x[0] + waves[2:] * x[1]).reconstructed_data.real


def controlled(x):
    model = DMDc(svd_rank=2)
    model.fit(waves[:2] * x[:, None] + 0.1 * waves[2], np.sin(times[:-1])[None] * x[1])
    return model.reconstructed_data().real


def correlation(x):
    return dcor.distance_correlation(samples * x, other)


def covariance(x):
    return dcor.distance_covariance_sqr(samples * x, other)


def unbiased(x):
    return dcor.u_distance_correlation_sqr(samples * x, other)


def energy(x):
    return dcor.energy_distance(samples * x, other)


def partial(x):
    return dcor.partial_distance_correlation(samples * x, other, samples[:, :1] ** 2 * x[1])


CALLS = [
    (f, ratio)
    for f in (
        eigenvalues, reconstructed, delayed, controlled, correlation, covariance, unbiased, energy, partial
    )
]  # fmt: skip
