"""The twin of celerite.cu, which says what is computed.

`sizes`: the numbers of real, complex and quadratic terms, jitter and mean as 0 or 1.  `shape` is what `layout` gives.  Arrays are
(component, lane): x holds u, c, s, root, rate, inverse and (base, mean); F holds p, n and m; d holds q, w, the rows D, z, 1 / D,
z / D with room for four more, and `here`."""

import numpy as np
from scipy.special import zeta

from .handwritten import CHUNK, twin
from .own_functions import cos, exp, expm1, fma, log, sin
from .sample_loops import LANES, at, cube, outcome

LENGTH = 12
SERIES = tuple([float(zeta(2 * k) / np.pi ** (2 * k)) for k in range(LENGTH, 0, -1)])  # of (1 - x cot x) / (2 x^2) in x^2


def layout(sizes):
    """The numbers of real terms and of rows; the first row and the first parameter of each term; where the elements of a symmetric
    matrix stand, of a full one, of a vector."""
    real, pairs = sizes[0], sizes[1] + sizes[2]
    R, k = real + 2 * pairs, np.arange(real + pairs)
    i, j = np.indices((R, R))
    high, low = np.maximum(i, j), np.minimum(i, j)
    row, place = np.where(k < real, k, 2 * k - real), np.where(k < real, 2 * k, 4 * k - 2 * real)
    lower, full = high * (high + 1) // 2 + low, i * R + j
    return real, R, row, place, lower, full, np.arange(R)


@twin
def dot(out, o, a, rows_a, b, rows_b, n):
    """out[o] = out[o] + sum of a[rows_a[k]] b[rows_b[k]], lane by lane, in the order of k."""
    k, count = 0, len(rows_a)
    y = out[o]
    while k < count:
        a0, b0 = a[rows_a[k]], b[rows_b[k]]
        if k + 4 <= count:
            a1, a2, a3 = a[rows_a[k + 1]], a[rows_a[k + 2]], a[rows_a[k + 3]]
            b1, b2, b3 = b[rows_b[k + 1]], b[rows_b[k + 2]], b[rows_b[k + 3]]
            for l in range(n):
                y[l] = fma(a3[l], b3[l], fma(a2[l], b2[l], fma(a1[l], b1[l], fma(a0[l], b0[l], y[l]))))
            k += 4
        else:
            for l in range(n):
                y[l] = fma(a0[l], b0[l], y[l])
            k += 1


@twin
def turn(out, o, p, x, m, y, n):
    """out[o] = p x - m y."""
    z = out[o]
    for l in range(n):
        z[l] = fma(p[l], x[l], -(m[l] * y[l]))


@twin
def turn_back(out, o, p, x, m, y, n):
    """out[o] = p x + m y."""
    z = out[o]
    for l in range(n):
        z[l] = fma(p[l], x[l], m[l] * y[l])


@twin
def scaled(out, o, p, x, n):
    z = out[o]
    for l in range(n):
        z[l] = p[l] * x[l]


@twin
def prepare(theta, begin, n, sizes, shape, x, valid):
    """The rows of x for the samples begin .. begin + n: u, c, s, root, rate, inverse and base with the mean."""
    u, c, s, root, rate, inverse, base = x
    row, place = shape[2], shape[3]
    one, zero, last_row = theta.dtype.type(1), theta.dtype.type(0), 2 * sizes[0] + 4 * (sizes[1] + sizes[2])
    valid[:] = True
    base[:] = 0
    for k in range(len(row)):
        for l in range(n):
            a, c[k, l] = theta[place[k], begin + l], theta[place[k] + (1 if k < sizes[0] else 2), begin + l]
            base[0, l] = base[0, l] + a
            u[row[k], l] = a
            s[k, l], root[k, l], inverse[k, l], rate[k, l] = zero, zero, zero, c[k, l]
            if k >= sizes[0]:
                second, last = theta[place[k] + 1, begin + l], theta[place[k] + 3, begin + l]
                square = k >= sizes[0] + sizes[1]
                u[row[k] + 1, l] = second if square else second * last
                s[k, l] = last - c[k, l] * c[k, l] if square else last * last
                root[k, l] = np.sqrt(abs(s[k, l])) if square else abs(last)
                rate[k, l] = last / (c[k, l] + root[k, l]) if s[k, l] < 0 else c[k, l]
                inverse[k, l] = one / root[k, l] if root[k, l] > 0 else zero
                finite = u[row[k] + 1, l] - u[row[k] + 1, l] == 0 and s[k, l] - s[k, l] == 0
                valid[l] = valid[l] and finite and rate[k, l] >= 0
            valid[l] = valid[l] and c[k, l] >= 0 and c[k, l] - c[k, l] == 0
    for l in range(n):
        if sizes[3]:
            base[0, l] = base[0, l] + theta[last_row, begin + l]
            valid[l] = valid[l] and theta[last_row, begin + l] >= 0
        if sizes[4]:
            base[1, l] = theta[last_row + sizes[3], begin + l]
        valid[l] = valid[l] and base[0, l] - base[0, l] == 0 and base[1, l] - base[1, l] == 0


@twin
def transition(x, gap, n, real, F):
    """p, n and m of each term over the gaps."""
    _, _, s, root, rate, inverse, _ = x
    p, sine, m = F
    two, half, zero = p.dtype.type(2), p.dtype.type(-0.5), p.dtype.type(0)
    for k in range(len(s)):
        pk, nk, mk, sk, wk, rk, ik, beyond = p[k], sine[k], m[k], s[k], root[k], rate[k], inverse[k], False
        for l in range(n):
            pk[l] = exp(-(rk[l] * gap[l]))
        if k < real:
            continue
        for l in range(n):
            beyond = beyond or sk[l] < 0
        for l in range(n):
            e, angle = pk[l], wk[l] * gap[l]
            mk[l] = e
            pk[l] = e * cos(angle)
            nk[l] = e * sin(angle) * ik[l] if wk[l] > 0 else e * gap[l]
        for l in range(n if beyond else 0):
            e = mk[l]
            part = expm1(-two * (wk[l] * gap[l])) * half
            pk[l] = e - e * part if sk[l] < zero else pk[l]
            nk[l] = e * part * ik[l] if sk[l] < zero else nk[l]
        for l in range(n):
            mk[l] = sk[l] * nk[l]


@twin
def seen_from(x, S, f, y, variance, n, shape, d):
    """q, w and the rows D, z, 1 / D, z / D; both last are 0 where the datum is missing."""
    u, base = x[0], x[6]
    _, _, row, _, lower, _, order = shape
    q, w, rows, here = d
    D, z, inverse, gain = rows[0], rows[1], rows[2], rows[3]
    one, zero = D.dtype.type(1), D.dtype.type(0)
    for l in range(n):
        D[l] = variance[l] + base[0, l]
        z[l] = y[l] - base[1, l]
        here[l] = y[l] == y[l] and variance[l] == variance[l]
    for i in range(len(q)):
        qi, wi, ui, fi = q[i], w[i], u[i], f[i]
        qi[:n] = 0
        dot(q, i, S, lower[i], u, order, n)
        for l in range(n):
            wi[l] = -qi[l]
        for l in range(n):
            D[l] = fma(-ui[l], qi[l], D[l])
        for l in range(n):
            z[l] = fma(-ui[l], fi[l], z[l])
    for k in range(len(row)):
        wi, qi = w[row[k]], q[row[k]]
        for l in range(n):
            wi[l] = one - qi[l]
    for l in range(n):
        inverse[l] = one / D[l] if here[l] else zero
        gain[l] = z[l] * inverse[l] if here[l] else zero


@twin
def update(d, S, f, T, g, n):
    """S and f after the datum, in T and g."""
    _, w, rows, _ = d
    inverse, gain, scratch = rows[2], rows[3], rows[4]
    for i in range(len(w)):
        wi, fi, gi = w[i], f[i], g[i]
        for l in range(n):
            scratch[l] = wi[l] * inverse[l]
            gi[l] = fma(wi[l], gain[l], fi[l])
        for j in range(i + 1):
            wj, old, new = w[j], S[at(i, j)], T[at(i, j)]
            for l in range(n):
                new[l] = fma(scratch[l], wj[l], old[l])


@twin
def propagate(F, T, g, S, f, M, n, shape):
    """S = F T F', f = F g."""
    p, sine, m = F
    real, R, row = shape[0], shape[1], shape[2]
    for k in range(len(row)):
        i = row[k]
        if k < real:
            scaled(f, i, p[k], g[i], n)
            for j in range(R):
                scaled(M, i * R + j, p[k], T[at(i, j)], n)
        else:
            turn(f, i, p[k], g[i], m[k], g[i + 1], n)
            turn_back(f, i + 1, p[k], g[i + 1], sine[k], g[i], n)
            for j in range(R):
                turn(M, i * R + j, p[k], T[at(i, j)], m[k], T[at(i + 1, j)], n)
                turn_back(M, (i + 1) * R + j, p[k], T[at(i + 1, j)], sine[k], T[at(i, j)], n)
    for k in range(len(row)):
        j = row[k]
        for i in range(j, R):
            if k < real:
                scaled(S, at(i, j), p[k], M[i * R + j], n)
            else:
                turn(S, at(i, j), p[k], M[i * R + j], m[k], M[i * R + j + 1], n)
                if i > j:
                    turn_back(S, at(i, j + 1), p[k], M[i * R + j + 1], sine[k], M[i * R + j], n)


@twin
def propagate_adjoint(F, S, f, S_bar, f_bar, bar, Y, n, shape):
    """In place from the cotangents of F S F' and F f to those of S and f; half of those of p, n and m in bar."""
    p, sine, m = F
    p_bar, n_bar, m_bar = bar
    real, R, row, _, lower, full, _ = shape
    half = Y.dtype.type(0.5)
    for k in range(len(row)):
        j, pk, nk, mk = row[k], p[k], sine[k], m[k]
        pb, nb, mb, first = p_bar[k], n_bar[k], m_bar[k], f_bar[j]
        if k < real:
            for l in range(n):
                pb[l] = half * first[l] * f[j, l]
                first[l] = pk[l] * first[l]
            for i in range(R):
                scaled(Y, i * R + j, pk, S_bar[at(i, j)], n)
        else:
            second = f_bar[j + 1]
            for l in range(n):
                a, b = first[l], second[l]
                pb[l] = half * fma(a, f[j, l], b * f[j + 1, l])
                nb[l] = half * b * f[j, l]
                mb[l] = half * a * f[j + 1, l]
                first[l] = fma(pk[l], a, nk[l] * b)
                second[l] = fma(pk[l], b, -(mk[l] * a))
            for i in range(R):
                turn_back(Y, i * R + j, pk, S_bar[at(i, j)], nk, S_bar[at(i, j + 1)], n)
                turn(Y, i * R + j + 1, pk, S_bar[at(i, j + 1)], mk, S_bar[at(i, j)], n)
    for k in range(len(row)):
        i, pk, nk, mk = row[k], p[k], sine[k], m[k]
        dot(p_bar, k, Y, full[i], S, lower[i], n)
        if k >= real:
            dot(p_bar, k, Y, full[i + 1], S, lower[i + 1], n)
            dot(n_bar, k, Y, full[i + 1], S, lower[i], n)
            sums, mb = Y[R * R], m_bar[k]
            sums[:n] = 0
            dot(Y, R * R, Y, full[i], S, lower[i + 1], n)
            for l in range(n):
                mb[l] = -(mb[l] + sums[l])
            for j in range(i + 1):
                turn_back(S_bar, at(i, j), pk, Y[i * R + j], nk, Y[(i + 1) * R + j], n)
            for j in range(i + 2):
                turn(S_bar, at(i + 1, j), pk, Y[(i + 1) * R + j], mk, Y[i * R + j], n)
        else:
            for j in range(i + 1):
                scaled(S_bar, at(i, j), pk, Y[i * R + j], n)


@twin
def transition_adjoint(x, F, bar, gap, part, n, real, series):
    s, by_c, by_s = x[2], part[1], part[2]
    p, sine, m = F
    p_bar, n_bar, m_bar = bar
    two, quarter = p.dtype.type(2), p.dtype.type(0.25)
    for k in range(len(s)):
        sk, pk, nk, mk, pb, nb, mb, ck, out = s[k], p[k], sine[k], m[k], p_bar[k], n_bar[k], m_bar[k], by_c[k], by_s[k]
        if k < real:
            for l in range(n):
                ck[l] = fma(-two * gap[l], pb[l] * pk[l], ck[l])
            continue
        for l in range(n):
            c_bar = fma(pb[l], pk[l], fma(nb[l], nk[l], mb[l] * mk[l]))
            ck[l] = fma(-two * gap[l], c_bar, ck[l])
        for l in range(n):
            mk[l] = mb[l] * fma(gap[l], pk[l], nk[l]) - gap[l] * nk[l] * pb[l]
        for l in range(n):
            z = sk[l] * gap[l] * gap[l]
            total = series[0]
            for i in range(1, LENGTH):
                total = fma(total, z, series[i])
            near, far = -(gap[l] * gap[l] * nk[l] * total), fma(gap[l], pk[l], -nk[l]) / (two * sk[l])
            pb[l] = near if z > -quarter and z < quarter else far
        for l in range(n):
            out[l] = out[l] + fma(two * nb[l], pb[l], mk[l])


@twin
def update_adjoint(x, d, S, f, S_bar, f_bar, part, h, n, shape):
    u, base = x[0], part[3]
    R, lower, order = shape[1], shape[4], shape[6]
    q, w, rows, _ = d
    inverse, gain, quadratic, linear, D_bar, z_bar = rows[2], rows[3], rows[4], rows[5], rows[6], rows[7]
    half, two = q.dtype.type(0.5), q.dtype.type(2)
    rows[4:6, :n] = 0
    h[:, :n] = 0
    for i in range(R):
        dot(h, i, S_bar, lower[i], w, order, n)
        wi, hi, fi = w[i], h[i], f_bar[i]
        for l in range(n):
            quadratic[l] = fma(wi[l], hi[l], quadratic[l])
        for l in range(n):
            linear[l] = fma(wi[l], fi[l], linear[l])
    for l in range(n):
        z_bar[l] = fma(inverse[l], linear[l], -gain[l])
        D_bar[l] = half * gain[l] * gain[l] - inverse[l] * fma(linear[l], gain[l], fma(inverse[l], quadratic[l], half))
        base[0, l] = base[0, l] + D_bar[l]
        base[1, l] = base[1, l] - z_bar[l]
    for i in range(R):  # from here on h holds the cotangent of q
        hi, fi, ui = h[i], f_bar[i], u[i]
        for l in range(n):
            hi[l] = -fma(D_bar[l], ui[l], fma(gain[l], fi[l], two * inverse[l] * hi[l]))
        for l in range(n):
            fi[l] = fma(-z_bar[l], ui[l], fi[l])
    for i in range(R):
        qi, fi, ui, hi, out = q[i], f[i], u[i], h[i], part[0][i]
        for l in range(n):
            quadratic[l] = -fma(D_bar[l], qi[l], z_bar[l] * fi[l])
        dot(rows, 4, S, lower[i], h, order, n)
        for l in range(n):
            out[l] = out[l] + quadratic[l]
        for j in range(i + 1):
            hj, uj, Sij = h[j], u[j], S_bar[at(i, j)]
            for l in range(n):
                Sij[l] = fma(half, fma(hi[l], uj[l], ui[l] * hj[l]), Sij[l])


@twin
def load(data, t, begin, n, gap, y, variance):
    for l in range(n):
        each = begin + l if data.shape[2] > 1 else 0
        gap[l], y[l], variance[l] = data[0, t, each], data[1, t, each], data[2, t, each]


@twin
def forward(data, value, tape, begin, n, shape, x, F, d, S, f, T, g, M, line, valid):
    """The samples begin .. begin + n; stores f and S before each datum if the tape is not empty."""
    gap, y, variance, rows, here, R = line[0], line[1], line[2], d[2], d[3], shape[1]
    total, seen, N = np.zeros(LANES), np.zeros(LANES, np.int64), data.shape[1]
    S[:], f[:] = 0, 0
    for t in range(N):
        load(data, t, begin, n, gap, y, variance)
        if t:
            transition(x, gap, n, shape[0], F)
            propagate(F, T, g, S, f, M, n, shape)
        if tape.size:
            tape[t, :R, :n] = f[:, :n]
            tape[t, R:, :n] = S[:, :n]
        seen_from(x, S, f, y, variance, n, shape, d)
        for l in range(n):
            term = log(rows[0, l]) + rows[1, l] * rows[3, l]
            total[l] += np.float64(term) if here[l] else 0.0
            seen[l] += here[l]
            valid[l] = valid[l] and (not here[l] or rows[0, l] > 0)
        update(d, S, f, T, g, n)
    outcome(value, total, seen, valid, begin, n)


@twin
def backward(data, tape, begin, n, shape, x, F, d, T, g, M, line, sums, series):
    """The sums of the derivatives by u, c, s and base."""
    gap, y, variance, later = line[0], line[1], line[2], line[3]
    dtype, N, R = T.dtype, data.shape[1], shape[1]
    S_bar, f_bar, h = np.zeros_like(T), np.zeros_like(g), np.empty_like(g)
    bar = np.empty_like(F[0]), np.empty_like(F[0]), np.empty_like(F[0])
    part = np.zeros(sums[0].shape, dtype), np.zeros(sums[1].shape, dtype), np.zeros(sums[2].shape, dtype), np.zeros(sums[3].shape, dtype)
    for t in range(N - 1, -1, -1):
        f, S = tape[t, :R], tape[t, R:]
        gap, later = later, gap
        load(data, t, begin, n, gap, y, variance)
        seen_from(x, S, f, y, variance, n, shape, d)
        if t + 1 < N:
            update(d, S, f, T, g, n)
            transition(x, later, n, shape[0], F)
            propagate_adjoint(F, T, g, S_bar, f_bar, bar, M, n, shape)
            transition_adjoint(x, F, bar, later, part, n, shape[0], series)
        update_adjoint(x, d, S, f, S_bar, f_bar, part, h, n, shape)
        if t % CHUNK == 0:
            for a in range(4):
                for i in range(len(part[a])):
                    for l in range(n):
                        sums[a][i, l] += part[a][i, l]
                        part[a][i, l] = 0


@twin
def finish(theta, gradient, begin, n, sizes, shape, x, sums, valid):
    c, row, place = x[1], shape[2], shape[3]
    u, by_c, by_s, base = sums
    last_row = 2 * sizes[0] + 4 * (sizes[1] + sizes[2])
    for k in range(len(row)):
        for l in range(n):
            s, i, ok = begin + l, place[k], valid[l]
            gradient[i, s] = u[row[k], l] + base[0, l] if ok else 0
            if k < sizes[0]:
                gradient[i + 1, s] = by_c[k, l] if ok else 0
                continue
            square = k >= sizes[0] + sizes[1]
            second, last, u2 = np.float64(theta[i + 1, s]), np.float64(theta[i + 3, s]), u[row[k] + 1, l]
            by_decay = by_c[k, l] - 2 * np.float64(c[k, l]) * by_s[k, l] if square else by_c[k, l]
            gradient[i + 1, s] = (u2 if square else u2 * last) if ok else 0
            gradient[i + 2, s] = by_decay if ok else 0
            gradient[i + 3, s] = (by_s[k, l] if square else u2 * second + 2 * last * by_s[k, l]) if ok else 0
    for l in range(n):
        if sizes[3]:
            gradient[last_row, begin + l] = base[0, l] if valid[l] else 0
        if sizes[4]:
            gradient[last_row + sizes[3], begin + l] = base[1, l] if valid[l] else 0


def rows_of(count, dtype):
    return np.zeros((count, LANES), dtype)


def celerite(theta, data, value, gradient, tape, B, sizes, series):
    """As in celerite.cu; without a gradient if that is empty."""
    shape, dtype = layout(sizes), theta.dtype
    R, terms = shape[1], len(shape[2])
    each, F = [tuple([rows_of(terms, dtype) for _ in range(n)]) for n in (5, 3)]
    x = rows_of(R, dtype), *each, rows_of(2, dtype)
    d = rows_of(R, dtype), rows_of(R, dtype), rows_of(8, dtype), np.zeros(LANES, np.bool_)
    S, f, M, line = rows_of(R * (R + 1) // 2, dtype), rows_of(R, dtype), rows_of(R * R + 1, dtype), rows_of(4, dtype)
    T, g, valid = np.empty_like(S), np.empty_like(f), np.empty(LANES, np.bool_)
    for s in range(0, B, LANES):
        n = min(LANES, B - s)
        prepare(theta, s, n, sizes, shape, x, valid)
        forward(data, value, tape, s, n, shape, x, F, d, S, f, T, g, M, line, valid)
        if gradient.size:
            sums = np.zeros((R, LANES)), np.zeros((terms, LANES)), np.zeros((terms, LANES)), np.zeros((2, LANES))
            backward(data, tape, s, n, shape, x, F, d, T, g, M, line, sums, series)
            finish(theta, gradient, s, n, sizes, shape, x, sums, valid)


def twins(sizes: tuple) -> tuple:
    def value(theta, data, value, B, N):
        none = np.empty((0, 0), theta.dtype)
        celerite(theta, cube(data), value, none, np.empty((0, 0, 0), theta.dtype), B, sizes, np.array(SERIES, theta.dtype))

    def both(theta, data, value, gradient, tape, B, N):
        celerite(theta, cube(data), value, gradient, tape, B, sizes, np.array(SERIES, theta.dtype))

    return value, both
