import nodepy.runge_kutta_method as rk
import numpy as np
import reservoirpy.nodes
from Bio.PDB import vectors
from Bio.SVDSuperimposer import SVDSuperimposer
from fipy import CellVariable, DiffusionTerm, Grid1D
from skimage import feature, registration, transform
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import NMF, PCA, FactorAnalysis
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.kernel_approximation import RBFSampler
from sklearn.kernel_ridge import KernelRidge
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from splipy import BSplineBasis, Curve, Surface, curve_factory

A = np.sin(1.3 * np.arange(30.0) ** 1.1).reshape(10, 3)
LABELS = (A[:, 0] + A[:, 1] > 0).astype(int)
IMAGE = np.cos(0.1 * np.arange(144.0).reshape(12, 12) ** 1.2)


def b_spline_curve(x):
    curve = Curve(BSplineBasis(3, [0, 0, 0, 1, 2, 2, 2]), np.reshape(x, (4, 2)))
    return np.concatenate([np.ravel(curve([0.3, 1.4])), curve.derivative(0.7), [curve.length()]])


def rational_curve(x):
    circle = curve_factory.circle(r=x[0])
    circle.rotate(x[1])
    return np.ravel(circle([0.3, 2.0]))


def interpolated_curve(x):
    return curve_factory.cubic_curve(np.reshape(x, (4, 2))).evaluate([0.4])


def surface(x):
    found = Surface(BSplineBasis(2), BSplineBasis(2), np.reshape(x, (4, 2)))
    return np.concatenate([found(0.3, 0.6), [found.area()]])


def torsion(x):
    points = [vectors.Vector(row) for row in np.reshape(x, (4, 3))]
    return np.array([vectors.calc_angle(*points[:3]), vectors.calc_dihedral(*points)])


def rotated(x):
    axis = vectors.Vector(x[0], x[1], 1.0)
    return vectors.Vector(1, 2, 3).left_multiply(vectors.rotaxis(x[2], axis)).get_array()


def superimposed(x):
    found = SVDSuperimposer()
    found.set(A[:5], np.reshape(x, (5, 3)))
    found.run()
    return np.array([found.get_rms(), *np.ravel(found.get_transformed())])


def diffusion(x):
    mesh = Grid1D(nx=8, dx=0.1)
    phi = CellVariable(mesh=mesh, value=0.0)
    phi.constrain(x[0], mesh.facesLeft)
    phi.constrain(1.0, mesh.facesRight)
    DiffusionTerm(coeff=1.0).solve(var=phi)
    return np.array(phi.value)


def face_averages(x):
    phi = CellVariable(mesh=Grid1D(nx=8, dx=0.1), value=x)
    return np.concatenate([phi.arithmeticFaceValue.value, phi.grad.value[0], [phi.cellVolumeAverage.value]])


def stability(x):
    method = rk.ExplicitRungeKuttaMethod(
        np.array([[0.0, 0.0], [x[0], 0.0]]), np.array([1 - x[1], x[1]]), mode="float"
    )
    p, q = method.stability_function(mode="float")
    return p(x[2])


def reservoir(x):
    node = reservoirpy.nodes.Reservoir(
        W=0.3 * np.cos(np.arange(16.0)).reshape(4, 4), Win=np.ones((4, 1)), bias=np.zeros(4), lr=0.5
    )
    return node.run(np.reshape(x, (6, 1)))


def principal_components(x):
    return PCA(2).fit(np.reshape(x, (10, 3))).explained_variance_


def factors(x):
    return (
        FactorAnalysis(1, svd_method="lapack", tol=1e-12, max_iter=400)
        .fit(np.reshape(x, (10, 3)))
        .noise_variance_
    )


def non_negative_factors(x):
    model = NMF(2, init="custom", solver="mu", max_iter=20, tol=0)
    return np.ravel(
        model.fit_transform(
            np.reshape(x, (5, 3)), W=np.ones((5, 2)) + 0.1 * A[:5, :2], H=np.ones((2, 3)) + 0.2 * A[:2]
        )
    )


def partial_least_squares(x):
    return np.ravel(PLSRegression(2).fit(A, np.reshape(x, (10, 1))).predict(A[:2]))


def discriminant(x):
    return np.ravel(LinearDiscriminantAnalysis(solver="lsqr").fit(np.reshape(x, (10, 3)), LABELS).coef_)


def kernel_ridge(x):
    return KernelRidge(kernel="rbf", alpha=0.1, gamma=0.4).fit(A, x).predict(A[:3] + 0.1)


def naive_bayes(x):
    return np.ravel(GaussianNB().fit(np.reshape(x, (10, 3)), LABELS).predict_log_proba(A[:3]))


def random_features(x):
    return np.ravel(
        RBFSampler(gamma=0.5, n_components=5, random_state=0).fit_transform(np.reshape(x, (10, 3)))
    )


def pipeline(x):
    model = make_pipeline(StandardScaler(), KernelRidge(alpha=0.2))
    return model.fit(np.reshape(x, (10, 3)), A[:, 0]).predict(A[:3])


def structure_tensor(x):
    found = feature.structure_tensor(np.reshape(x, (12, 12)), sigma=1.5)
    return np.ravel(feature.structure_tensor_eigenvalues(found))


def corners(x):
    image = np.reshape(x, (12, 12))
    return np.ravel([feature.corner_harris(image), feature.corner_shi_tomasi(image, 1.2)])


def gradients_histogram(x):
    return feature.hog(np.reshape(x, (12, 12)), 4, (4, 4), (2, 2))


def warped(x):
    turn = transform.AffineTransform(scale=x[0], rotation=x[1], translation=(x[2], 0.3))
    return np.array([*np.ravel(turn.params), *np.ravel(turn(A[:3, :2])), *np.ravel(turn.inverse(A[:2, :2]))])


def flow(x):
    return np.ravel(
        registration.optical_flow_ilk(IMAGE, np.reshape(x, (12, 12)), radius=3, num_warp=1, dtype=float)
    )


CALLS = [
    (b_spline_curve, [0.0, 0.1, 1.0, 2.0, 2.0, 0.5, 3.0, 1.0]),
    (rational_curve, [1.3, 0.4]),
    (interpolated_curve, [0.0, 0.1, 1.0, 2.0, 2.0, 0.5, 3.0, 1.0]),
    (surface, [0.0, 0.1, 1.0, 0.2, 0.1, 1.5, 1.2, 1.0]),
    (torsion, [0.0, 0.1, 0.2, 1.0, 0.3, 0.1, 1.4, 1.2, 0.2, 2.0, 1.0, 1.3]),
    (rotated, [0.3, 0.4, 0.7]),
    (superimposed, np.ravel(A[:5]) + 0.1 * np.cos(np.arange(15.0))),
    (diffusion, [0.3]),
    (face_averages, [0.3, 0.5, 0.1, 0.9, 0.4, 0.2, 0.6, 0.8]),
    (stability, [0.6, 0.4, -0.8]),
    (reservoir, [0.3, 0.5, 0.1, 0.9, 0.4, 0.2]),
    (principal_components, np.ravel(A)),
    (factors, np.ravel(A)),
    (non_negative_factors, 1.5 + np.ravel(A[:5])),
    (partial_least_squares, A[:, 0] + 0.2 * A[:, 1] ** 2),
    (discriminant, np.ravel(A)),
    (kernel_ridge, A[:, 0] + 0.2 * A[:, 1] ** 2),
    (naive_bayes, np.ravel(A)),
    (random_features, np.ravel(A)),
    (pipeline, np.ravel(A)),
    (structure_tensor, np.ravel(IMAGE)),
    (corners, np.ravel(IMAGE)),
    (gradients_histogram, np.ravel(IMAGE)),
    (warped, [1.2, 0.3, 0.5]),
    (flow, np.ravel(IMAGE) + 0.05 * np.sin(np.arange(144.0))),
]
