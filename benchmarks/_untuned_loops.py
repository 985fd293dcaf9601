"""Programs with a loop over time, as their users would write them: for `programs.py`.

A function of this file makes the data of one program. It gives the text for NumPy, the text for JAX and the
point. Nobody has changed a text to suit a system."""

import numpy as np
from scipy.special import logsumexp

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    jax = jnp = None


def heat_grid(rng):
    n, steps = 32, 60
    warm = np.zeros((n, n))
    warm[8:16, 10:20] = 1.0
    seen = 0.2 * rng.random((n, n))

    def f(k):
        u = warm.copy()
        for _ in range(steps):
            flow_x = k[1:, :] * (u[1:, :] - u[:-1, :])
            flow_y = k[:, 1:] * (u[:, 1:] - u[:, :-1])
            u[1:-1, :] += 0.2 * (flow_x[1:, :] - flow_x[:-1, :])
            u[:, 1:-1] += 0.2 * (flow_y[:, 1:] - flow_y[:, :-1])
            u[0, :] = u[1, :]
            u[-1, :] = u[-2, :]
        return ((u - seen) ** 2).sum()

    def theirs(k):
        def step(u, _):
            flow_x = k[1:, :] * (u[1:, :] - u[:-1, :])
            flow_y = k[:, 1:] * (u[:, 1:] - u[:, :-1])
            u = u.at[1:-1, :].add(0.2 * (flow_x[1:, :] - flow_x[:-1, :]))
            u = u.at[:, 1:-1].add(0.2 * (flow_y[:, 1:] - flow_y[:, :-1]))
            u = u.at[0, :].set(u[1, :])
            return u.at[-1, :].set(u[-2, :]), None

        u, _ = jax.lax.scan(step, jnp.asarray(warm), length=steps)
        return ((u - seen) ** 2).sum()

    return f, theirs, 0.5 + 0.3 * rng.random((n, n))


def n_body(rng):
    n, steps, dt = 16, 100, 0.01
    mass = 0.5 + rng.random(n)
    start = rng.normal(size=(n, 3))
    goal = rng.normal(size=(n, 3))

    def f(velocity):
        def acceleration(x):
            gap = x[None, :, :] - x[:, None, :]
            cube = ((gap**2).sum(axis=2) + 0.05) ** -1.5
            return (gap * (mass[None, :] * cube)[:, :, None]).sum(axis=1)

        x, v = start, velocity
        a = acceleration(x)
        for _ in range(steps):
            v = v + 0.5 * dt * a
            x = x + dt * v
            a = acceleration(x)
            v = v + 0.5 * dt * a
        return ((x - goal) ** 2).sum()

    def theirs(velocity):
        def acceleration(x):
            gap = x[None, :, :] - x[:, None, :]
            cube = ((gap**2).sum(axis=2) + 0.05) ** -1.5
            return (gap * (mass[None, :] * cube)[:, :, None]).sum(axis=1)

        def step(state, _):
            x, v, a = state
            v = v + 0.5 * dt * a
            x = x + dt * v
            a = acceleration(x)
            return (x, v + 0.5 * dt * a, a), None

        x = jnp.asarray(start)
        (x, _, _), _ = jax.lax.scan(step, (x, velocity, acceleration(x)), length=steps)
        return ((x - goal) ** 2).sum()

    return f, theirs, 0.3 * rng.normal(size=(n, 3))


def hmm_in_logs(rng):
    k, T = 10, 1000
    y = rng.normal(size=T)

    def f(theta):
        logits, mean = theta[: k * k].reshape(k, k), theta[k * k :]
        trans = logits - logsumexp(logits, axis=1, keepdims=True)
        emit = -0.5 * (y[:, None] - mean) ** 2
        alpha = emit[0] - np.log(k)
        for t in range(1, T):
            alpha = logsumexp(alpha[:, None] + trans, axis=0) + emit[t]
        return -logsumexp(alpha)

    def theirs(theta):
        lse = jax.scipy.special.logsumexp
        logits, mean = theta[: k * k].reshape(k, k), theta[k * k :]
        trans = logits - lse(logits, axis=1, keepdims=True)
        emit = -0.5 * (y[:, None] - mean) ** 2
        step = lambda alpha, e: (lse(alpha[:, None] + trans, axis=0) + e, None)
        alpha, _ = jax.lax.scan(step, emit[0] - jnp.log(k), emit[1:])
        return -lse(alpha)

    return f, theirs, 0.5 * rng.normal(size=k * k + k)


def hmm_scaled(rng):
    k, T = 10, 1000
    y = rng.normal(size=T)

    def f(theta):
        weights, mean = np.exp(theta[: k * k].reshape(k, k)), theta[k * k :]
        trans = weights / weights.sum(axis=1, keepdims=True)
        density = np.exp(-0.5 * (y[:, None] - mean) ** 2)
        p, total = np.full(k, 1.0 / k), 0.0
        for t in range(T):
            p = (p @ trans) * density[t]
            scale = p.sum()
            p = p / scale
            total += np.log(scale)
        return -total

    def theirs(theta):
        weights, mean = jnp.exp(theta[: k * k].reshape(k, k)), theta[k * k :]
        trans = weights / weights.sum(axis=1, keepdims=True)
        density = jnp.exp(-0.5 * (y[:, None] - mean) ** 2)

        def step(p, d):
            p = (p @ trans) * d
            scale = p.sum()
            return p / scale, jnp.log(scale)

        return -jax.lax.scan(step, jnp.full(k, 1.0 / k), density)[1].sum()

    return f, theirs, 0.5 * rng.normal(size=k * k + k)


def kalman_ten_states(rng):
    n, m, T = 10, 3, 200
    y, H = rng.normal(size=(T, m)), rng.normal(size=(m, n))
    start = np.concatenate([(0.7 * np.eye(n) + 0.03 * rng.normal(size=(n, n))).ravel(), np.zeros(n + m)])

    def f(theta):
        A = theta[: n * n].reshape(n, n)
        Q = np.diag(np.exp(theta[n * n : n * n + n]))
        R = np.diag(np.exp(theta[n * n + n :]))
        x, P, loglik = np.zeros(n), np.eye(n), 0.0
        for t in range(T):
            x, P = A @ x, A @ P @ A.T + Q
            v, S = y[t] - H @ x, H @ P @ H.T + R
            K = np.linalg.solve(S, H @ P).T
            x, P = x + K @ v, P - K @ S @ K.T
            loglik += -0.5 * (v @ np.linalg.solve(S, v) + np.linalg.slogdet(S)[1])
        return -loglik

    def theirs(theta):
        A = theta[: n * n].reshape(n, n)
        Q = jnp.diag(jnp.exp(theta[n * n : n * n + n]))
        R = jnp.diag(jnp.exp(theta[n * n + n :]))

        def step(state, obs):
            x, P = state
            x, P = A @ x, A @ P @ A.T + Q
            v, S = obs - H @ x, H @ P @ H.T + R
            K = jnp.linalg.solve(S, H @ P).T
            part = -0.5 * (v @ jnp.linalg.solve(S, v) + jnp.linalg.slogdet(S)[1])
            return (x + K @ v, P - K @ S @ K.T), part

        return -jax.lax.scan(step, (jnp.zeros(n), jnp.eye(n)), jnp.asarray(y))[1].sum()

    return f, theirs, start


def recursive_least_squares(rng):
    T, d = 500, 5
    X = rng.normal(size=(T, d))
    y = X @ rng.normal(size=d) + 0.1 * rng.normal(size=T)

    def f(theta):
        forget, ridge = 1 / (1 + np.exp(-theta[0])), np.exp(theta[1:])
        w, P, loss = np.zeros(d), np.diag(1 / ridge), 0.0
        for x, target in zip(X, y, strict=True):
            Px = P @ x
            gain = Px / (forget + x @ Px)
            error = target - x @ w
            w = w + gain * error
            P = (P - np.outer(gain, Px)) / forget
            loss += error**2
        return loss / T

    def theirs(theta):
        forget, ridge = 1 / (1 + jnp.exp(-theta[0])), jnp.exp(theta[1:])

        def step(state, datum):
            (w, P), (x, target) = state, datum
            Px = P @ x
            gain = Px / (forget + x @ Px)
            error = target - x @ w
            return (w + gain * error, (P - jnp.outer(gain, Px)) / forget), error**2

        start = jnp.zeros(d), jnp.diag(1 / ridge)
        return jax.lax.scan(step, start, (jnp.asarray(X), jnp.asarray(y)))[1].sum() / T

    return f, theirs, np.array([4.0, 0.1, 0.2, 0.3, 0.4, 0.5])


def crank_nicolson(rng):
    n, steps, dt = 60, 100, 0.01
    S = np.linspace(0.0, 3.0, n + 2)[1:-1]
    payoff, market = np.maximum(S - 1.0, 0.0), np.maximum(S - 0.9, 0.0)
    below, above = np.eye(n, k=-1), np.eye(n, k=1)

    def f(theta):
        sigma, r = theta[:-1], theta[-1]
        j = S / (S[1] - S[0])
        a, b = 0.25 * dt * (sigma**2 * j**2 - r * j), 0.25 * dt * (sigma**2 * j**2 + r * j)
        L = a[:, None] * below + b[:, None] * above - np.diag(0.5 * dt * (sigma**2 * j**2 + r))
        left, right = np.eye(n) - L, np.eye(n) + L
        v = payoff
        for _ in range(steps):
            v = np.linalg.solve(left, right @ v)
        return ((v - market) ** 2).sum()

    def theirs(theta):
        sigma, r = theta[:-1], theta[-1]
        j = S / (S[1] - S[0])
        a, b = 0.25 * dt * (sigma**2 * j**2 - r * j), 0.25 * dt * (sigma**2 * j**2 + r * j)
        L = a[:, None] * below + b[:, None] * above - jnp.diag(0.5 * dt * (sigma**2 * j**2 + r))
        left, right = jnp.eye(n) - L, jnp.eye(n) + L
        step = lambda v, _: (jnp.linalg.solve(left, right @ v), None)
        v, _ = jax.lax.scan(step, jnp.asarray(payoff), length=steps)
        return ((v - market) ** 2).sum()

    return f, theirs, np.append(0.2 + 0.1 * rng.random(n), 0.03)


def garch(rng):
    T = 2000
    r = rng.normal(size=T)

    def f(theta):
        omega, alpha, beta = np.exp(theta)
        h, total = 1.0, 0.0
        for t in range(T):
            total += np.log(h) + r[t] ** 2 / h
            h = omega + alpha * r[t] ** 2 + beta * h
        return 0.5 * total

    def theirs(theta):
        omega, alpha, beta = jnp.exp(theta)
        step = lambda h, r: (omega + alpha * r**2 + beta * h, jnp.log(h) + r**2 / h)
        return 0.5 * jax.lax.scan(step, jnp.ones(()), jnp.asarray(r))[1].sum()

    return f, theirs, np.log([0.1, 0.1, 0.8])


def asian_option(rng):
    paths, steps = 5000, 50
    Z = rng.normal(size=(steps, paths))

    def f(theta):
        spot, sigma, r = theta
        dt = 1.0 / steps
        S, total = np.full(paths, 1.0) * spot, np.zeros(paths)
        for z in Z:
            S = S * np.exp((r - 0.5 * sigma**2) * dt + sigma * np.sqrt(dt) * z)
            total += S
        return np.exp(-r) * np.maximum(total / steps - 1.0, 0.0).mean()

    def theirs(theta):
        spot, sigma, r = theta
        dt = 1.0 / steps

        def step(state, z):
            S, total = state
            S = S * jnp.exp((r - 0.5 * sigma**2) * dt + sigma * jnp.sqrt(dt) * z)
            return (S, total + S), None

        (_, total), _ = jax.lax.scan(step, (jnp.ones(paths) * spot, jnp.zeros(paths)), jnp.asarray(Z))
        return jnp.exp(-r) * jnp.maximum(total / steps - 1.0, 0.0).mean()

    return f, theirs, np.array([1.0, 0.2, 0.03])


def robot_arm(rng):
    joints, T = 7, 50
    lengths = 0.2 + 0.1 * rng.random(joints)
    goals = 0.5 * rng.normal(size=(T, 3))

    def f(angles):
        cost = 0.0
        for t in range(T):
            place, turn = np.zeros(3), np.eye(3)
            for j in range(joints):
                c, s = np.cos(angles[t, j]), np.sin(angles[t, j])
                if j % 2:
                    rotation = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
                else:
                    rotation = np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])
                turn = turn @ rotation
                place = place + turn @ np.array([lengths[j], 0.0, 0.0])
            cost += ((place - goals[t]) ** 2).sum()
        return cost + 0.1 * (np.diff(angles, axis=0) ** 2).sum()

    def theirs(angles):
        def miss(angles, goal):
            place, turn = jnp.zeros(3), jnp.eye(3)
            for j in range(joints):
                c, s = jnp.cos(angles[j]), jnp.sin(angles[j])
                if j % 2:
                    rotation = jnp.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
                else:
                    rotation = jnp.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])
                turn = turn @ rotation
                place = place + turn @ jnp.array([lengths[j], 0.0, 0.0])
            return ((place - goal) ** 2).sum()

        return jax.vmap(miss)(angles, goals).sum() + 0.1 * (jnp.diff(angles, axis=0) ** 2).sum()

    return f, theirs, 0.5 * rng.normal(size=(T, joints))


def runge_kutta(rng):
    steps, dt = 1000, 0.01

    def f(theta):
        a, b, c, d = theta[:4]
        rhs = lambda y: np.array([a * y[0] - b * y[0] * y[1], -c * y[1] + d * y[0] * y[1]])
        y = theta[4:]
        for _ in range(steps):
            k1 = rhs(y)
            k2 = rhs(y + 0.5 * dt * k1)
            k3 = rhs(y + 0.5 * dt * k2)
            k4 = rhs(y + dt * k3)
            y = y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return (y**2).sum()

    def theirs(theta):
        a, b, c, d = theta[:4]
        rhs = lambda y: jnp.array([a * y[0] - b * y[0] * y[1], -c * y[1] + d * y[0] * y[1]])

        def step(y, _):
            k1 = rhs(y)
            k2 = rhs(y + 0.5 * dt * k1)
            k3 = rhs(y + 0.5 * dt * k2)
            k4 = rhs(y + dt * k3)
            return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

        y, _ = jax.lax.scan(step, theta[4:], length=steps)
        return (y**2).sum()

    return f, theirs, np.array([1.1, 0.4, 0.4, 0.1, 2.0, 1.0])


def lstm(rng):
    T, batch, d, h = 30, 8, 12, 24
    X, y = rng.normal(size=(T, batch, d)), rng.normal(size=batch)
    start = (
        0.2 * rng.normal(size=(d, 4 * h)),
        0.2 * rng.normal(size=(h, 4 * h)),
        np.zeros(4 * h),
        0.2 * rng.normal(size=h),
    )

    def f(params):
        W, U, b, out = params
        sigmoid = lambda z: 1 / (1 + np.exp(-z))
        hidden, cell = np.zeros((batch, h)), np.zeros((batch, h))
        for x in X:
            i, g, o, keep = np.split(x @ W + hidden @ U + b, 4, axis=1)
            cell = sigmoid(keep) * cell + sigmoid(i) * np.tanh(g)
            hidden = sigmoid(o) * np.tanh(cell)
        return ((hidden @ out - y) ** 2).mean()

    def theirs(params):
        W, U, b, out = params
        sigmoid = lambda z: 1 / (1 + jnp.exp(-z))

        def step(state, x):
            hidden, cell = state
            i, g, o, keep = jnp.split(x @ W + hidden @ U + b, 4, axis=1)
            cell = sigmoid(keep) * cell + sigmoid(i) * jnp.tanh(g)
            return (sigmoid(o) * jnp.tanh(cell), cell), None

        (hidden, _), _ = jax.lax.scan(step, (jnp.zeros((batch, h)), jnp.zeros((batch, h))), jnp.asarray(X))
        return ((hidden @ out - y) ** 2).mean()

    return f, theirs, start


def beam_search(rng):
    T, words, beam, d = 20, 30, 4, 8
    noise = rng.normal(size=(T, words))
    start = rng.normal(size=(words, d)), rng.normal(size=(words, d))

    def f(params):
        given, asked = params
        scores = asked @ given.T
        steps = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        score, last = noise[0][:beam], np.arange(beam)
        for t in range(1, T):
            both = (score[:, None] + steps[last] + 0.1 * noise[t]).ravel()
            best = np.argsort(-both)[:beam]
            score, last = both[best], best % words
        return -np.log(np.exp(score).sum())

    def theirs(params):
        given, asked = params
        scores = asked @ given.T
        steps = scores - jnp.log(jnp.exp(scores).sum(axis=1, keepdims=True))

        def step(state, z):
            score, last = state
            both = (score[:, None] + steps[last] + 0.1 * z).ravel()
            best = jnp.argsort(-both)[:beam]
            return (both[best], best % words), None

        (score, _), _ = jax.lax.scan(step, (noise[0][:beam], jnp.arange(beam)), jnp.asarray(noise[1:]))
        return -jnp.log(jnp.exp(score).sum())

    return f, theirs, start


PROGRAMS = (
    heat_grid, n_body, hmm_in_logs, hmm_scaled, kalman_ten_states, recursive_least_squares, crank_nicolson,
    garch, asian_option, robot_arm, runge_kutta, lstm, beam_search,
)  # fmt: skip
