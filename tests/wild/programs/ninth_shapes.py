import compas.geometry as cg
import numpy as np
from diffpy.structure import Atom, Lattice, Structure
from nibabel import affines, eulerangles, quaternions
from skinematics import quat, rotmat, vector
from svgpathtools import Arc, CubicBezier, Line, Path, QuadraticBezier
from yeadon.solid import Stadium, StadiumSolid


def quaternion_products(x):
    p, q = quat.unit_q(x[:3]), quat.unit_q(x[3:])
    return np.concatenate(
        [np.ravel(quat.q_mult(p, q)), np.ravel(quat.q_inv(q)), np.ravel(quat.convert(p, to="rotmat"))]
    )


def orientations(x):
    r = rotmat.R("z", x[0]) @ rotmat.R("x", x[1]) @ rotmat.R("y", x[2])
    return np.concatenate(
        [
            rotmat.sequence(r, to="nautical"),
            np.ravel(rotmat.convert(r, to="quat")),
            np.ravel(rotmat.dh(*x, 4.0)),
        ]
    )


def vectors(x):
    a, b = x[:3], x[3:]
    return np.concatenate([[vector.angle(a, b)], vector.project(a, b), vector.q_shortest_rotation(a, b),
                           np.ravel(vector.GramSchmidt(a, b, np.array([0.3, -1.0, 2.0])))])  # fmt: skip


def angular_velocity(x):
    omega = np.stack([np.sin(x[0] * np.arange(8.0)), x[1] * np.ones(8), 0.1 * np.arange(8.0)], axis=1)
    return quat.calc_quat(omega, np.array([1.0, 0.0, 0.0, 0.0]), 50.0, "bf")[-1]


def frames(x):
    frame = cg.Frame(x[:3], [1.0, 0.2, 0.0], [x[3], 1.0, 0.3])
    point = frame.to_local_coordinates(cg.Point(1.0, 2.0, 3.0))
    return np.array([*point, *frame.zaxis, *cg.Transformation.from_frame(frame).matrix[0]])


def compas_polygon(x):
    points = [[x[0], 0.0, 0.1], [1.0, x[1], 0.0], [0.4, 1.5, x[2]], [-0.3, 0.8, 0.2]]
    return np.array([cg.area_polygon(points), *cg.centroid_polygon(points), *cg.normal_polygon(points)])


def compas_distances(x):
    a, b = ([0.0, 0.1, 0.2], [1.0, x[0], 0.3]), ([0.2, 1.0, x[1]], [0.5, -1.0, 1.3])
    p, q = cg.intersection_line_line(a, b)
    return np.array(
        [cg.distance_line_line(a, b), cg.distance_point_line(x, a), *p, *q, *cg.closest_point_on_line(x, a)]
    )


def compas_rotation(x):
    r = cg.Rotation.from_axis_and_angle(x[:3], x[3])
    return np.array([*cg.Vector(0.3, 0.7, -1.0).transformed(r), *r.quaternion, *r.euler_angles()])


def bezier_curve(x):
    curve = cg.Bezier([[0.0, 0.0, 0.0], [x[0], 1.0, 0.2], [x[1], -1.0, x[2]], [3.0, 0.0, 0.0]])
    return np.array([*curve.point_at(0.4), *curve.tangent_at(0.7)])


def spline_length(x):
    curve = CubicBezier(0 + 0j, x[0] + 1j * x[1], 3 + 1j * x[2], 4 + 0.5j)
    return np.array(
        [curve.length(), curve.curvature(0.3), abs(curve.point(0.6)), curve.unit_tangent(0.2).real]
    )


def svg_path(x):
    path = Path(Line(0j, x[0] + 1j), QuadraticBezier(x[0] + 1j, 2 + 1j * x[1], 3 + 1j), Line(3 + 1j, 0j))
    return np.array([path.length(), path.area(), path.point(0.45).imag, *path.bbox()])


def svg_arc(x):
    arc = Arc(0j, x[0] + 1j * x[1], 20.0, False, True, 3 + 1j)
    return np.array([arc.length(), arc.point(0.3).real, arc.center.imag, arc.derivative(0.4).real])


def lattices(x):
    lattice = Lattice(x[0], x[1], x[2], x[3], 95.0, 110.0)
    return np.array([lattice.volume, lattice.dist([0.1, 0.2, 0.3], [0.6, 0.1, 0.9]), lattice.angle([1, 0, 0], [1, 1, 1]),
                     lattice.rnorm([1, 2, 0]), *lattice.reciprocal().abcABG()])  # fmt: skip


def crystal(x):
    atoms = [Atom("Na", x[1:4]), Atom("Cl", [0.5, 0.5, 0.45]), Atom("Cl", [0.1, 0.2, 0.9])]
    structure = Structure(atoms, lattice=Lattice(x[0], 5.0, 6.0, 90, 90, 100))
    return np.array([structure.distance(0, 1), structure.angle(0, 1, 2), *np.ravel(structure.xyz_cartn)])


def head_positions(x):
    m = eulerangles.euler2mat(x[0], x[1], x[2])
    return np.array(
        [
            *eulerangles.mat2euler(m),
            *quaternions.mat2quat(m),
            *quaternions.rotate_vector([1.0, 2.0, 3.0], quaternions.fillpositive(x / 3)),
        ]
    )


def voxels(x):
    affine = affines.from_matvec(np.diag(x[:3]) + 0.1, x[3:])
    return np.array(
        [
            *affines.voxel_sizes(affine),
            *affines.apply_affine(affine, [1.0, 2.0, 3.0]),
            *affines.obliquity(affine),
        ]
    )


def limbs(x):
    lower = Stadium("Ls1: umbilicus", "perimwidth", 2 * x[0] + np.pi * x[0], x[0] * 1.3)
    solid = StadiumSolid(
        "s", 1000.0, lower, Stadium("Ls2: lowest front rib", "depthwidth", 2.2 * x[1], 2.9 * x[1] + x[2]), 0.3
    )
    return np.array([solid.mass, *np.ravel(solid.rel_center_of_mass), *np.diag(solid.rel_inertia)])


six = np.array([0.1, 0.3, -0.2, 0.4, 0.25, 0.15])
CALLS = [
    (quaternion_products, six),
    (orientations, np.array([20.0, 30.0, -15.0])),
    (vectors, six),
    (angular_velocity, np.array([0.4, 0.3])),
    (frames, np.array([0.4, 0.3, -0.2, 0.15])),
    (compas_polygon, np.array([0.4, 0.3, -0.2])),
    (compas_distances, np.array([0.4, 0.3, -0.2])),
    (compas_rotation, np.array([0.4, 0.3, -0.2, 0.7])),
    (bezier_curve, np.array([0.4, 1.3, -0.2])),
    (spline_length, np.array([0.4, 1.3, -0.2])),
    (svg_path, np.array([0.4, 1.3])),
    (svg_arc, np.array([2.4, 1.9])),
    (lattices, np.array([4.0, 5.0, 6.0, 85.0])),
    (crystal, np.array([4.0, 0.1, 0.2, 0.3])),
    (head_positions, np.array([0.4, 0.3, -0.2])),
    (voxels, np.array([2.0, 3.0, 2.5, 10.0, 20.0, -5.0])),
    (limbs, np.array([0.3, 0.2, 0.15])),
]
