import librosa
import nfft
import numpy as np
import pyefd
import spectral
from findiff import Diff, Gradient, Laplacian
from skimage import restoration
from skimage.measure import EllipseModel
from skimage.transform import EuclideanTransform, PolynomialTransform
from spectral.algorithms import algorithms as hyper

SOUND = np.sin(0.21 * np.arange(600.0)) + 0.3 * np.cos(0.53 * np.arange(600.0))


def coefficients_of_mel(x):
    y = SOUND * (1.0 + x[0] * np.sin(0.01 * np.arange(600.0))) + x[1] * np.cos(0.9 * np.arange(600.0))
    return librosa.feature.mfcc(y=y, sr=8000.0, n_mfcc=4, n_fft=128, hop_length=64, n_mels=10)[:, 1:4]


def shape_of_spectrum(x):
    y = SOUND + x[0] * np.cos(0.9 * np.arange(600.0)) + x[1] * np.sin(1.7 * np.arange(600.0))
    kw = {"y": y, "sr": 8000.0, "n_fft": 128, "hop_length": 200}
    return np.concatenate(
        [
            librosa.feature.spectral_centroid(**kw)[0],
            librosa.feature.spectral_bandwidth(**kw)[0],
            librosa.feature.rms(y=y)[0],
        ]
    )


def decibels(x):
    return np.concatenate(
        [librosa.power_to_db(x**2, ref=2.0), librosa.A_weighting(200.0 * x), librosa.hz_to_mel(300.0 * x)]
    )


def there_and_back(x):
    y = SOUND[:200] * x[0] + x[1] * np.cos(0.9 * np.arange(200.0))
    return librosa.istft(librosa.stft(y, n_fft=64, hop_length=16) ** 2, hop_length=16)[60:80]


def chroma(x):
    y = SOUND + x[0] * np.cos(0.9 * np.arange(600.0))
    return librosa.feature.chroma_stft(y=y, sr=8000.0, n_fft=256, hop_length=300, tuning=x[1])[:4]


def not_equally_spaced(x):
    transformed = nfft.nfft(
        np.array([-0.4, -0.1, 0.05, 0.23]), np.concatenate([x, x[::-1] ** 2, np.sin(x), x * x[0]]), m=3
    )
    return np.concatenate([transformed.real, transformed.imag])


def contour(x):
    outline = x.reshape(-1, 2)
    closed = np.concatenate([outline, outline[:1]])
    return pyefd.elliptic_fourier_descriptors(closed, order=3, normalize=True)[1:].ravel()


def outline(x):
    return pyefd.reconstruct_contour(x.reshape(-1, 4), locus=(0.3, 0.4), num_points=7)


def stencils(x):
    field = (
        np.sin(x[0] * np.linspace(0.0, 1.0, 7))[:, None] * np.cos(x[1] * np.linspace(0.0, 1.0, 6))[None, :]
    )
    dx, dy = Diff(0, 0.2), Diff(1, 0.25)
    return (dx**2 + dy**2)(field)[2:4] + x[2] * (dx * dy)(field)[2:4]


def coil(x):
    return (
        Laplacian(h=[0.1, 0.1], acc=2)(x.reshape(6, 6))[1:3]
        + Gradient(h=[0.1, 0.1], acc=2)(x.reshape(6, 6))[0, 1:3]
    )


def spectral_angle(x):
    cube = x.reshape(2, 2, 5)
    members = np.array([[1.0, 2.0, 1.5, 0.4, 0.2], [0.3, 0.1, 0.7, 1.6, 2.0]])
    return np.concatenate([hyper.spectral_angles(cube, members).ravel(), hyper.unmix(cube, members).ravel()])


def components(x):
    pc = spectral.principal_components(x.reshape(4, 3, 3))
    return np.concatenate([pc.eigenvalues, pc.mean])


def ellipse(x):
    t = np.linspace(0.0, 5.5, 9)
    points = np.stack([x[0] + x[2] * np.cos(t), x[1] + x[3] * np.sin(t)], 1) + 0.02 * np.cos(3 * t)[:, None]
    model = EllipseModel()
    model.estimate(points)
    return np.array(model.params)[:4]


def warped(x):
    source = np.array([[0.0, 0.0], [1.0, 0.2], [0.9, 1.1], [0.1, 0.8], [0.4, 0.5], [0.7, 0.1]])
    target = x.reshape(6, 2)
    return np.concatenate(
        [
            EuclideanTransform.from_estimate(source, target).params.ravel(),
            PolynomialTransform.from_estimate(source, target, 1).params.ravel(),
        ]
    )


def unwrapped(x):
    image = np.exp(-((np.mgrid[:6, :6][0] - 2.5) ** 2)) * x[0] + x[1] * np.mgrid[:6, :6][1]
    kernel = np.array([[0.1, 0.2, 0.1], [0.2, 0.4, 0.2], [0.1, 0.2, 0.1]])
    return restoration.richardson_lucy(image, kernel, num_iter=3)[1:4]


CALLS = [
    (coefficients_of_mel, [0.2, 0.4]),
    (shape_of_spectrum, [0.5, 0.2]),
    (decibels, [0.7, 1.9, 2.4]),
    (there_and_back, [0.8, 0.5]),
    (chroma, [0.5, 0.1]),
    (not_equally_spaced, [0.4, -0.3, 0.9, 0.2]),
    (contour, [0.0, 0.1, 1.1, 0.0, 1.6, 0.8, 0.9, 1.5, 0.2, 1.1]),
    (outline, [1.0, 0.1, -0.2, 0.9, 0.2, 0.05, 0.1, 0.15]),
    (stencils, [2.1, 1.7, 0.6]),
    (coil, np.sin(np.arange(36.0) ** 1.2)),
    (spectral_angle, 1.5 + np.sin(np.arange(20.0) ** 1.3)),
    (components, np.sin(np.arange(36.0) ** 1.3)),
    (ellipse, [0.4, -0.2, 2.0, 1.1]),
    (warped, [0.1, 0.3, 1.2, 0.6, 0.9, 1.5, 0.0, 1.2, 0.45, 0.85, 0.9, 0.4]),
    (unwrapped, [1.3, 0.2]),
]
