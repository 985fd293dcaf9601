"""What the twins of the two Kalman filters share, as filters.cu does for the CUDA C: the prediction, its adjoint, and their place in
the sweeps.

Names are those of the CUDA C.  In place of one sample's numbers stand vectors of samples side by side; symmetric matrices are kept
whole, for then all sums run over rows or columns."""

from collections.abc import Callable

from .handwritten import inlined, twin
from .on_cpu import Sweeps
from .sweeps import Frame, Steps, datum, dot, dot_column, nothing
from .vectors import fma, where, whole


@twin
def predict(A, Q, m, P, mean, M, K):
    """m <- A m, P <- A P A' + Q."""
    for i in range(K):
        mean[i] = dot(A + i * K, m, K)
        for j in range(K):
            M[i * K + j] = dot(A + i * K, P + j * K, K)
    q = 0
    for i in range(K):
        m[i] = mean[i]
        for j in range(i + 1):
            x = Q[q]
            for p in range(K):
                x = fma(M[i * K + p], A[j * K + p], x)
            P[i * K + j] = x
            P[j * K + i] = x
            q += 1


@twin
def predict_adjoint(A, m, P, A_bar, Q_bar, m_bar, P_bar, mean, PA, K):
    """From the cotangents of the results to those of the operands m and P, in place; those of A and Q are added to."""
    for i in range(K):
        for j in range(K):
            PA[i * K + j] = dot_column(P_bar + i * K, A + j, K, K)
    q = 0
    for i in range(K):
        for j in range(K):
            x = dot(PA + i * K, P + j * K, K)
            A_bar[i * K + j] = fma(2, x, fma(m_bar[i], m[j], A_bar[i * K + j]))
        for j in range(i + 1):
            x = P_bar[i * K + j]
            Q_bar[q] = Q_bar[q] + (x if i == j else 2 * x)
            q += 1
    for j in range(K):
        mean[j] = dot_column(m_bar, A + j, K, K)
    for i in range(K):
        m_bar[i] = mean[i]
        for j in range(i + 1):
            x = A[i] * PA[j]
            for p in range(1, K):
                x = fma(A[p * K + i], PA[p * K + j], x)
            P_bar[i * K + j] = x
            P_bar[j * K + i] = x


@inlined
def nonnegative_diagonal(Q, n, valid):
    """`valid` where it was and no element on the diagonal of the triangle is negative."""
    q = 0
    for i in range(n):
        valid = valid & (Q[q] >= 0)
        q += i + 2
    return valid


@inlined
def parts(room, K, D):
    """A, C, Q, R, m, P, the place after them."""
    T = K * (K + 1) // 2
    A, C, Q = room, room + K * K, room + (K * K + D * K)
    R = Q + T
    m = R + D * (D + 1) // 2
    P = m + K
    return (A, C, Q, R), m, P, P + K * K


@inlined
def rest(room, K, D):
    """y, mean, M; the cotangents; m and P after the update; the place after them."""
    y = parts(room, K, D)[3]
    mean = y + D
    M = mean + K
    bars, m_bar, P_bar, after = parts(M + K * K, K, D)
    return y, mean, M, bars, m_bar, P_bar, after, after + K, after + (K + K * K)


@twin
def load(x, layout, a, outside, t):
    """Argument a at step t."""
    theta, mode, n, place = outside[0], layout[a, 0], layout[a, 1], layout[a, 2]
    for i in range(n):
        x[i] = datum(outside, place + i, t) if mode == 2 else theta[place + i + (t * n if mode == 1 else 0)]


@twin
def load_step(args, y, layout, outside, t, D):
    """The observations, and the arguments that have a value for each step."""
    for i in range(D):
        y[i] = datum(outside, i, t)
    for a in range(4):
        if layout[a, 0]:
            load(args[a], layout, a, outside, t)


@twin
def write(x, layout, a, outside, t, valid):
    """The gradient of argument a, and zeros in its place."""
    gradient, mode, n, place = outside[6], layout[a, 0], layout[a, 1], layout[a, 2]
    for i in range(n):
        if mode != 2:
            gradient[place + i + (t * n if mode == 1 else 0)] = where(valid, x[i], 0)
        x[i] = 0


@twin
def begin(room, outside, layout, sizes):
    K, D = sizes
    args, m, P, _ = parts(room, K, D)
    bars = parts(rest(room, K, D)[2] + K * K, K, D)[0]
    for a in range(4):
        if not layout[a, 0]:
            load(args[a], layout, a, outside, 0)
    load(m, layout, 4, outside, 0)
    load(P, layout, 5, outside, 0)
    for i in range(2 * K * K + (D + 1) * K + (K * (K + 1) + D * (D + 1)) // 2):
        bars[0][i] = 0
    valid = nonnegative_diagonal(P, K, whole(m[0], True))
    for i in range(K - 1, -1, -1):  # the triangle becomes the whole matrix
        for j in range(i, -1, -1):
            P[i * K + j] = P[i * (i + 1) // 2 + j]
    for i in range(K):
        for j in range(i):
            P[j * K + i] = P[i * K + j]
    return valid


@twin
def move(room, outside, t, layout, sizes):
    K, D = sizes
    args, m, P, _ = parts(room, K, D)
    _, mean, M, _, _, _, _, _, _ = rest(room, K, D)
    predict(args[0], args[2], m, P, mean, M, K)


@twin
def save(room, stored, sizes):
    K, D = sizes
    _, m, P, _ = parts(room, K, D)
    for i in range(K):
        stored[i] = m[i]
    for i in range(K):
        for j in range(i + 1):
            stored[K + i * (i + 1) // 2 + j] = P[i * K + j]


@twin
def restore(room, stored, sizes):
    K, D = sizes
    _, m, P, _ = parts(room, K, D)
    for i in range(K):
        m[i] = stored[i]
    for i in range(K):
        for j in range(i + 1):
            x = stored[K + i * (i + 1) // 2 + j]
            P[i * K + j] = x
            P[j * K + i] = x


@twin
def move_adjoint(room, outside, t, layout, sizes):
    K, D = sizes
    args = parts(room, K, D)[0]
    _, mean, M, bars, m_bar, P_bar, m, P, _ = rest(room, K, D)
    predict_adjoint(args[0], m, P, bars[0], bars[2], m_bar, P_bar, mean, M, K)


@twin
def store(room, outside, t, layout, valid, sizes):
    K, D = sizes
    bars = rest(room, K, D)[3]
    for a in range(4):
        if layout[a, 0]:
            write(bars[a], layout, a, outside, t, valid)


@twin
def finish(room, outside, layout, valid, sizes):
    K, D = sizes
    P = parts(room, K, D)[2]
    _, _, _, bars, m_bar, P_bar, _, _, _ = rest(room, K, D)
    for i in range(K):
        for j in range(i + 1):
            P[i * (i + 1) // 2 + j] = P_bar[i * K + j] * (1 if i == j else 2)
    for a in range(4):
        if not layout[a, 0]:
            write(bars[a], layout, a, outside, 0, valid)
    write(m_bar, layout, 4, outside, 0, valid)
    write(P, layout, 5, outside, 0, valid)


def filter_steps(update: Callable, update_adjoint: Callable) -> Steps:
    """The steps of a filter, by its own

        update(args, y, m, P, m_after, P_after, work, K, D)     the term, the number observed, and whether it is valid;
                                                                m_after, P_after may be m, P
        update_adjoint(args, y, m, P, m_bar, P_bar, bars, work, K, D)

    `work` begins with what `update` leaves for `update_adjoint`."""

    @twin
    def observe(room, outside, t, layout, sizes):
        K, D = sizes
        args, m, P, _ = parts(room, K, D)
        y, _, _, _, _, _, _, _, work = rest(room, K, D)
        load_step(args, y, layout, outside, t, D)
        term, count, positive = update(args, y, m, P, m, P, work, K, D)
        return term, count, nonnegative_diagonal(args[2], K, nonnegative_diagonal(args[3], D, positive))

    @twin
    def recall(room, outside, t, layout, sizes):
        K, D = sizes
        args, m, P, _ = parts(room, K, D)
        y, _, _, _, _, _, m_after, P_after, work = rest(room, K, D)
        load_step(args, y, layout, outside, t, D)
        update(args, y, m, P, m_after, P_after, work, K, D)

    @twin
    def observe_adjoint(room, outside, t, layout, sizes):
        K, D = sizes
        args, m, P, _ = parts(room, K, D)
        y, _, _, bars, m_bar, P_bar, _, _, work = rest(room, K, D)
        update_adjoint(args, y, m, P, m_bar, P_bar, bars, work, K, D)

    return Steps(begin, observe, move, save, restore, recall, move_adjoint, observe_adjoint, store, nothing, finish)


def filter_sweeps(steps: Steps, work: int, sizes: dict, modes: list) -> Sweeps:
    """`work`: vectors that update and its adjoint need."""
    K, D = sizes["k"], sizes.get("d", 1)
    args = 2 * K * K + D * K + K * (K + 1) // 2 + D * (D + 1) // 2 + K
    cost = 6 * K**3 + 14 * K * K + 6 * K * K * D + 60 * D
    frame = Frame(sizes=(K, D), modes=modes, lines=D, stored=K + K * (K + 1) // 2)
    return Sweeps(steps, frame, room=3 * args + D + work, cost=cost)
