import felupe as fem
import numpy as np
from Pynite import FEModel3D
from skspatial.objects import Circle, Line, Plane, Points, Sphere, Triangle, Vector


def strain_energy(x):
    f = np.eye(3)[..., None, None] + np.resize(x, (3, 3))[..., None, None]
    solid = fem.NeoHooke(mu=1.0, bulk=2.0)
    return solid.function([f])[0], solid.gradient([f, None])[0]


def energy_only(x):
    return strain_energy(x)[0]


def stress(x):
    return strain_energy(x)[1]


def compressible(x):
    f = np.eye(3)[..., None, None] + np.resize(0.1 * x, (3, 3))[..., None, None]
    return fem.NeoHookeCompressible(mu=x[0], lmbda=x[1]).hessian([f, None])[0]


def internal_forces(x):
    mesh = fem.Rectangle(n=3)
    region = fem.RegionQuad(mesh)
    field = fem.FieldContainer([fem.FieldPlaneStrain(region, dim=2)])
    field[0].values[:] = np.resize(x, (9, 2))
    body = fem.SolidBody(fem.NeoHooke(mu=1.0, bulk=2.0), field)
    return body.assemble.vector().toarray()


def stiffness(x):
    mesh = fem.Cube(n=2)
    field = fem.FieldContainer([fem.Field(fem.RegionHexahedron(mesh), dim=3)])
    body = fem.SolidBody(fem.LinearElastic(E=x[0], nu=x[1]), field)
    return body.assemble.matrix().toarray()


def mesh_volume(x):
    mesh = fem.Rectangle(n=3)
    mesh.points[:] += 0.1 * np.resize(x, (9, 2))
    return fem.RegionQuad(mesh).dV


def stretched_cube(x):
    mesh = fem.Cube(n=2)
    field = fem.FieldContainer([fem.Field(fem.RegionHexahedron(mesh), dim=3)])
    boundaries, loadcase = fem.dof.uniaxial(field, clamped=True, move=0.2)
    body = fem.SolidBody(fem.NeoHooke(mu=x[0], bulk=x[1]), field)
    fem.newtonrhapson(items=[body], verbose=0, tol=1e-12, **loadcase)
    return body.assemble.vector().toarray()


def beam(x):
    model = FEModel3D()
    model.add_node("A", 0, 0, 0)
    model.add_node("B", 5.0, 0, 0)
    model.add_material("Steel", x[0], 77e6, 0.3, 78.0)
    model.add_section("S", 0.01, 1e-4, x[1], 1e-5)
    model.add_member("M", "A", "B", "Steel", "S")
    model.def_support("A", True, True, True, True, True, True)
    model.add_node_load("B", "FY", x[2])
    model.analyze_linear()
    return np.array([1e3 * model.nodes["B"].DY["Combo 1"], model.nodes["A"].RxnMZ["Combo 1"]])


def member_forces(x):
    model = FEModel3D()
    model.add_node("A", 0, 0, 0)
    model.add_node("B", x[0], 0, 0)
    model.add_material("Steel", 200e6, 77e6, 0.3, 78.0)
    model.add_section("S", 0.01, 1e-4, 1e-4, 1e-5)
    model.add_member("M", "A", "B", "Steel", "S")
    model.def_support("A", True, True, True, True, False, False)
    model.def_support("B", False, True, True, False, False, False)
    model.add_member_dist_load("M", "Fy", x[1], x[2])
    model.analyze()
    return np.array([model.members["M"].moment("Mz", 2.0), model.members["M"].shear("Fy", 1.0)])


def vectors(x):
    v, w = Vector(x), Vector([0.3, -1.0, 2.0])
    return np.array(
        [v.norm(), v.angle_between(w), v.cosine_similarity(w), *v.cross(w), *v.unit(), *w.project_vector(v)]
    )


def lines(x):
    a, b = Line([0.0, 1.0, 0.3], x), Line([1.0, 0.0, 0.0], [0.3, 0.5, 2.0])
    return np.array(
        [a.distance_line(b), a.distance_point([1.0, 2.0, 3.0]), *a.project_point([0.5, 0.2, 0.1])]
    )


def planes(x):
    p = Plane.from_points(x[:3], x[3:6], [0.0, 0.3, 1.0])
    hit = p.intersect_line(Line([0.1, 0.2, 0.3], [1.0, 0.5, 0.2]))
    return np.array([*p.cartesian(), *hit, p.distance_point([1.0, 2.0, 3.0])])


def triangles(x):
    t = Triangle(x[:2], x[2:4], [0.0, 0.0])
    return np.array([t.area(), t.perimeter(), t.angle("A"), *t.centroid(), *t.orthocenter()])


def spheres(x):
    s = Sphere([0.1, 0.2, 0.3], x[0])
    a, b = s.intersect_line(Line([0, 0, 0], x[1:4]))
    return np.array([s.volume(), *a, *b, *Circle.from_points(x[:2], x[1:3], [5.0, 1.0]).point])


def fitted_plane(x):
    return Plane.best_fit(Points(np.reshape(x, (5, 3)))).distance_point([0.2, 0.4, 5.0])


def fitted_sphere(x):
    s = Sphere.best_fit(Points(np.reshape(x, (5, 3))))
    return np.array([*s.point, s.radius])


cloud = np.cos(1.7 * np.arange(15.0) ** 1.3)
CALLS = [
    (energy_only, np.linspace(-0.1, 0.2, 9)),
    (stress, np.linspace(-0.1, 0.2, 9)),
    (compressible, np.array([1.0, 2.0, 0.3])),
    (internal_forces, 0.02 * np.sin(np.arange(18.0))),
    (stiffness, np.array([2.0, 0.3])),
    (mesh_volume, np.array([0.3, -0.2, 0.5])),
    (stretched_cube, np.array([1.0, 2.0])),
    (beam, np.array([200e6, 1e-4, 12.0])),
    (member_forces, np.array([5.0, -2.0, -3.0])),
    (vectors, np.array([1.0, 0.5, 0.2])),
    (lines, np.array([1.0, 0.5, 0.2])),
    (planes, np.array([1.0, 0.5, 0.2, -0.3, 0.4, 0.1])),
    (triangles, np.array([1.0, 0.2, 0.3, 1.5])),
    (spheres, np.array([2.0, 0.5, 0.2, 0.7])),
    (fitted_plane, cloud),
    (fitted_sphere, cloud),
]
