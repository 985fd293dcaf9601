import mir_eval
import numpy as np
import pymcdm
import skfuzzy
import trimesh
from causalinference import CausalModel
from pymcdm.methods import TOPSIS, VIKOR

table = np.array([[7.2, 3.1, 5.0], [6.0, 4.4, 8.1], [9.3, 2.2, 4.1], [5.1, 5.9, 6.6]])
weights, kinds = np.array([0.5, 0.3, 0.2]), np.array([1, -1, 1])
universe = np.linspace(0.0, 10.0, 41)
shape = np.array([4.1, 1.3, 0.7])
corners = np.array([[0.0, 0.0, 0.0], [1.0, 0.1, 0.0], [0.2, 1.1, 0.1], [0.1, 0.3, 0.9]])
faces = np.array([[0, 2, 1], [0, 1, 3], [1, 2, 3], [0, 3, 2]])
generator = np.random.default_rng(5)
outcome, covariate = generator.normal(size=40), generator.normal(size=(40, 2))
sources = generator.normal(size=(2, 1500))
mixed = sources + 0.3 * sources[::-1] + 0.1 * generator.normal(size=(2, 1500))
centres = table[[0, 3]] + 0.1
treated = np.arange(40) % 2


def topsis(x):
    return TOPSIS()(x, weights, kinds)


def vikor(x):
    return VIKOR()(x, weights, kinds)


def entropy(x):
    return pymcdm.weights.entropy_weights(x)


def membership(x):
    return skfuzzy.gaussmf(universe, x[0], x[1])


def centroid(x):
    return skfuzzy.defuzz(universe, skfuzzy.gbellmf(universe, x[1], 2.0 + x[2], x[0]), "centroid")


def interpolated(x):
    return skfuzzy.interp_membership(universe, skfuzzy.gaussmf(universe, x[0], x[1]), 3.0 + x[2])


def areas(x):
    return trimesh.triangles.area(x[faces])


def solid(x):
    mesh = trimesh.Trimesh(x, faces, process=False)
    return np.array([mesh.volume, mesh.area])


def turned(x):
    return trimesh.transformations.rotation_matrix(x[0], x, point=[0.1, 0.2, 0.3])


def separation(x):
    return np.concatenate(
        mir_eval.separation.bss_eval_sources(sources, np.outer(x[:2], sources[1]) + mixed)[:3]
    )


def images(x):
    return mir_eval.separation.bss_eval_images(sources[:, :, None], (mixed * x[1] + x[0])[:, :, None])[0]


def clusters(x):
    return skfuzzy.cluster.cmeans_predict(table.T * x[0], centres, 2.0, 0.0, 5)[0]


def effect(x):
    model = CausalModel(x, treated, covariate)
    model.est_via_ols()
    return model.estimates["ols"]["ate"]


CALLS = [(f, table) for f in (topsis, vikor, entropy)]
CALLS += [(f, shape) for f in (membership, centroid, interpolated, turned, separation, images, clusters)]
CALLS += [(areas, corners), (solid, corners), (effect, outcome)]
