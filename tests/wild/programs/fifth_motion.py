import navpy
import numpy as np
import rowan
import vector
from anastruct import SystemElements
from ikpy.chain import Chain
from ikpy.link import OriginLink, URDFLink
from pygeomag import GeoMag

q = np.array([0.8, 0.2, -0.4, 0.3])
p = np.array([0.3, -0.5, 0.9])
arm = Chain(
    name="arm",
    links=[
        OriginLink(),
        URDFLink("shoulder", [0.0, 0.0, 0.1], [0.0, 0.0, 0.0], rotation=[0.0, 1.0, 0.0]),
        URDFLink("elbow", [0.4, 0.0, 0.0], [0.0, 0.0, 0.2], rotation=[0.0, 1.0, 0.0]),
        URDFLink("hand", [0.3, 0.0, 0.0], [0.0, 0.1, 0.0], rotation=[0.0, 0.0, 1.0]),
    ],
    active_links_mask=[False, True, True, True],
)


def to_ecef(x):
    return navpy.lla2ecef(40.0 + x[0], 10.0 + x[1], 100.0 * x[2])


def to_lla(x):
    return np.stack(navpy.ecef2lla(4.2e6 + 1e5 * x))


def to_ned(x):
    return navpy.lla2ned(40.0 + x[0], 10.0 + x[1], 100.0 * x[2], 40.0, 10.0, 0.0)


def attitude(x):
    return navpy.angle2dcm(x[0], x[1], x[2])


def angles(x):
    return np.stack(navpy.dcm2angle(navpy.angle2dcm(x[0], x[1], x[2])))


def attitude_quaternion(x):
    scalar, rest = navpy.angle2quat(x[0], x[1], x[2])
    return np.append(rest, scalar)


def rotated(x):
    return rowan.rotate(rowan.normalize(x), np.array([1.0, 2.0, 3.0]))


def matrix(x):
    return rowan.to_matrix(rowan.normalize(x))


def euler(x):
    return rowan.to_euler(rowan.normalize(x))


def slerp(x):
    return rowan.interpolate.slerp(rowan.normalize(x), np.array([1.0, 0.0, 0.0, 0.0]), 0.3)


def logarithm(x):
    return rowan.log(rowan.exp(x))


def axis_angle(x):
    return rowan.from_axis_angle(x, 0.7)


def lorentz(x):
    a, b = vector.obj(px=x[0], py=x[1], pz=x[2], M=0.5), vector.obj(pt=1.0, phi=0.3, eta=x[0], mass=0.1)
    return np.stack([(a + b).mass, a.boostX(0.3).pt, a.deltaR(b)])


def lorentz_arrays(x):
    v = vector.arr({"px": x, "py": 2.0 * x, "pz": x**2, "E": 3.0 + x**2})
    return v.mass


def hand_position(x):
    return arm.forward_kinematics([0.0, x[0], x[1], x[2]])[:3, 3]


def magnetic_field(x):
    return (
        GeoMag()
        .calculate(
            glat=48.0 + x[0], glon=11.0 + x[1], alt=x[2], time=2024.5, allow_date_outside_lifespan=True
        )
        .f
    )


def frame(x):
    system = SystemElements()
    system.add_element(location=[[0, 0], [0, 5]], EA=15000.0, EI=5000.0 * (1.0 + x[0] ** 2))
    system.add_element(location=[[0, 5], [5, 5]], EA=15000.0, EI=5000.0)
    system.add_support_fixed(node_id=1)
    system.add_support_hinged(node_id=3)
    system.point_load(node_id=2, Fx=30.0 * x[2])
    system.solve()
    return np.stack([system.get_node_displacements(2)[k] for k in ("ux", "uy", "phi_z")])


CALLS = [(f, p) for f in (to_ecef, to_lla, to_ned, attitude, angles, attitude_quaternion, axis_angle)]
CALLS += [(f, q) for f in (rotated, matrix, euler, slerp, logarithm)]
CALLS += [(f, p) for f in (lorentz, lorentz_arrays, hand_position, magnetic_field, frame)]
