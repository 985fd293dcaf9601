import numpy as np
from skimage.color import rgb2gray, rgb2hsv, rgb2lab
from skimage.exposure import adjust_gamma, adjust_sigmoid, rescale_intensity
from skimage.filters import gaussian, sobel, unsharp_mask
from skimage.measure import block_reduce, moments
from skimage.metrics import mean_squared_error, peak_signal_noise_ratio, structural_similarity
from skimage.restoration import denoise_tv_chambolle, wiener
from skimage.transform import integral_image, resize

rng = np.random.default_rng(1)
image = rng.uniform(0.2, 0.8, (9, 9))
other = rng.uniform(0.2, 0.8, (9, 9))
colours = rng.uniform(0.2, 0.8, (3, 3, 3))


def grey(x):
    return rgb2gray(x)


def lab(x):
    return rgb2lab(x)


def hsv(x):
    return rgb2hsv(x)


def gamma(x):
    return adjust_gamma(x, 0.7)


def sigmoid(x):
    return adjust_sigmoid(x)


def intensity(x):
    return rescale_intensity(x, out_range=(0.0, 1.0))


def blur(x):
    return gaussian(x, sigma=1.0)


def edges(x):
    return sobel(x)


def sharpen(x):
    return unsharp_mask(x, radius=1.0)


def error(x):
    return mean_squared_error(x, other)


def noise_ratio(x):
    return peak_signal_noise_ratio(other, x, data_range=1.0)


def similarity(x):
    return structural_similarity(x, other, data_range=1.0)


def reduced(x):
    return block_reduce(x, (3, 3), np.mean)


def image_moments(x):
    return moments(x, order=2)


def total_variation(x):
    return denoise_tv_chambolle(x, weight=0.1, max_num_iter=5)


def integral(x):
    return integral_image(x)


def resized(x):
    return resize(x, (5, 5))


def deconvolved(x):
    return wiener(x, np.ones((3, 3)) / 9, 0.1)


CALLS = [
    (grey, colours), (lab, colours), (hsv, colours), (gamma, image), (sigmoid, image), (intensity, image),
    (blur, image), (edges, image),
    (sharpen, image), (error, image), (noise_ratio, image), (similarity, image), (reduced, image),
    (image_moments, image),
    (total_variation, image), (integral, image), (resized, image), (deconvolved, image),
]  # fmt: skip
