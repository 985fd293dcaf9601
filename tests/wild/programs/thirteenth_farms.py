import numpy as np
from py_wake.deficit_models.gaussian import BastankhahGaussianDeficit


def wake(x):
    deficit = BastankhahGaussianDeficit(k=0.04)
    return deficit.calc_deficit(
        WS_ref_ijlk=np.full((1, 1, 1, 1), 10.0), WS_ilk=np.array([[[10.0]]]), WS_eff_ilk=np.array([[[10.0]]]), D_src_il=np.array([[80.0]]),
        dw_ijlk=np.reshape(x[:2] * 100.0, (1, 2, 1, 1)), cw_ijlk=np.reshape(x[2:4] * 10.0, (1, 2, 1, 1)),
        ct_ilk=np.reshape(x[4], (1, 1, 1)), wake_radius_ijlk=None,
    ).ravel()  # fmt: skip


CALLS = [(wake, [5.0, 7.0, 1.2, 2.0, 0.7])]
