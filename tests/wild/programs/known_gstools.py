import gstools as gs
import numpy as np

d = np.array([0.2, 0.7, 1.5])


def gaussian_variogram(x):
    return gs.Gaussian(dim=1, var=2.0, len_scale=1.5).variogram(x)


def exponential_covariance(x):
    return gs.Exponential(dim=2, var=1.2, len_scale=0.8).covariance(x)


def matern(x):
    return gs.Matern(dim=1, nu=1.5).correlation(x)


def scale(x):
    return gs.Gaussian(dim=1, var=x[0], len_scale=x[1]).variogram(d)


def spectrum(x):
    return gs.Gaussian(dim=1).spectral_density(x)


def kriging(x):
    return gs.krige.Simple(gs.Gaussian(dim=1), np.array([0.0, 1.0, 2.0]), x)(
        np.array([0.5, 1.5]), return_var=False
    )


CALLS = [(f, d) for f in (gaussian_variogram, exponential_covariance, matern, scale, spectrum, kriging)]
