"""Kinds of statement that write in place."""

from random_writer import NoFit, kind


@kind(4)
def set_region(p):
    u = p.writable(p.any())
    at = p.region(u)
    p.line(f"{u}{at} = {p.term(p.shape(u + at))}")


@kind(4)
def augmented(p):
    u = p.writable(p.any())
    at = p.region(u)
    op = p.pick("+", "-", "*", "/", "**")
    e = p.fit(p.shape(u + at))
    e = {"/": f"{e} * {e} + 1.5", "**": p.pick("2", "2.0", "3")}.get(op, p.pick(e, f"{e} * 0.5"))
    p.line(f"{u}{at} {op}= {e}")


@kind()
def augmented_whole(p):
    u = p.writable(p.any())
    e = p.term(p.shape(u))
    p.line(
        p.pick(
            f"{u} += {e}",
            f"{u} -= {e}",
            f"{u} *= {e}",
            f"{u} /= 1.5 + np.sin({e})",
            f"{u} **= 2",
            f"{u} *= 0.5",
        )
    )


@kind()
def power_of_itself(p):
    u = p.writable(p.any())
    p.line(f"np.sin({u}, out={u})")  # powers of powers would overflow
    p.line(f"{u} *= {u}")
    p.line(f"{u} += 0.6")
    p.line(f"{u} **= {p.pick(u, p.fit(p.shape(u)), '0.5')}")


@kind()
def write_through_a_view(p):
    u = p.writable(p.any())
    at = p.region(u, 1)
    if not p.shape(u + at):
        raise NoFit
    v = p.name("v")
    p.line(f"{v} = {u}{at}")
    at = p.region(v)
    p.line(f"{v}{at} {p.pick('=', '+=', '*=')} {p.term(p.shape(v + at))}")
    if p.chance(0.3):
        p.pool.append(v)


@kind(3)
def overlap(p):
    u = p.writable(p.vector(3))
    p.line(
        p.pick(
            f"{u}[1:] += {u}[:-1]",
            f"{u}[:-1] = {u}[1:]",
            f"{u}[1:] = {u}[:-1] * 0.5",
            f"{u}[...] = {u}[::-1]",
            f"{u}[::-1] += {u}",
            f"{u}[1:] *= {u}[:-1]",
            f"{u}[:2] -= {u}[1:3]",
            f"{u}[-2:], {u}[:2] = {u}[:2], {u}[-2:]",
            f"{u}[1:] = {u}[1:] + {u}[:-1] * {u}[1:]",
        )
    )


@kind()
def overlap_of_rows(p):
    m = p.writable(p.matrix(square=True))
    p.line(
        p.pick(
            f"{m} += {m}.T",
            f"{m}[...] = {m}.T",
            f"{m}.T[...] = {m} * {p.element(p.any())}",
            f"{m}[1:] = {m}[:-1]",
            f"{m}[:, 1:] -= {m}[:, :-1]",
            f"{m}[0], {m}[-1] = {m}[-1], {m}[0]",
            f"{m} *= {m}[0]",
            f"{m} -= {m}[:, :1]",
        )
    )


@kind(1)
def swap(p):
    u = p.writable(p.vector(2))
    i, j = p.rng.sample(range(p.shape(u)[0]), 2)
    p.line(f"{u}[{i}], {u}[{j}] = {p.copy(f'{u}[{j}]')}, {p.copy(f'{u}[{i}]')}")


@kind()
def with_itself(p):
    u = p.writable(p.any())
    p.line(
        p.pick(f"{u} += {u}", f"{u} *= {u}", f"{u} -= {u} * {u}", f"{u} *= {u} + 0.5", f"{u} -= {u}[::-1]")
    )


@kind()
def out(p):
    u = p.writable(p.any())
    e, w = p.fit(p.shape(u)), p.fit(p.shape(u))
    p.line(
        p.pick(
            f"np.multiply({u}, {w}, out={u})",
            f"np.sin({u}, out={u})",
            f"np.add({u}, {p.element(p.any())}, out={u})",
            f"np.subtract({u}, {e} * {w}, {u})",
            f"np.exp({u} * 0.1, {u})",
        )
    )


@kind()
def out_of_a_region(p):
    u = p.writable(p.vector(2))
    n = p.shape(u)[0]
    p.line(
        p.pick(
            f"np.sin({u}[:-1], out={u}[1:])",
            f"np.multiply({u}[1:], {u}[:-1], out={u}[:-1])",
            f"np.add({u}[::-1], {p.fit((n,))}, out={u})",
            f"np.cumsum({u} * 0.5, out={u})",
            f"np.multiply({u}[:1], {p.term((1,))}, out={u}[-1:])",
        )
    )


@kind(1)
def out_of_a_matrix(p):
    m = p.writable(p.matrix(square=True))
    u = p.writable(p.vector(p.shape(m)[0]))
    n = p.shape(m)[0]
    p.line(
        p.pick(
            f"np.matmul({m}, np.sin({m}), out={m})",
            f"np.sum({m}, axis=0, out={u}[:{n}])",
            f"np.matmul({m}, {m}[0], out={u}[:{n}])",
            f"np.mean({m}, 1, out={u}[:{n}])",
        )
    )


@kind(1, cupy=False)
def where(p):
    u = p.writable(p.vector())
    n = p.shape(u)[0]
    p.line(
        p.pick(
            f"np.multiply({u}, {p.fit((n,))}, out={u}, where={p.mask(n)})",
            f"np.sin({p.fit((n,))}, out={u}, where={p.mask(n)})",
            f"np.add({u}, {u}[::-1], out={u}, where={p.mask(n)})",
        )
    )


@kind(1)
def add_at(p):
    u = p.writable(p.vector())
    p.line(f"np.add.at({u}, {p.places(p.shape(u)[0], 3)}, {p.term((3,))})")


@kind(1, cupy=False)
def subtract_at(p):
    u = p.writable(p.vector())
    p.line(f"np.subtract.at({u}, {p.places(p.shape(u)[0], 3)}, {p.term((3,))})")


@kind(1)
def add_at_of_a_matrix(p):
    m = p.writable(p.matrix())
    r, c = p.shape(m)
    p.line(f"np.add.at({m}, ({p.places(r, 3)}, {p.places(c, 3)}), {p.term((3,))})")


@kind()
def fancy_write(p):
    u = p.writable(p.vector(2))
    at = p.places(p.shape(u)[0], 2, distinct=True)
    p.line(f"{u}[{at}] {p.pick('=', '+=', '*=')} {p.term((2,))}")


@kind(cupy=False)
def fancy_write_with_duplicates(p):
    u = p.writable(p.vector())
    p.line(f"{u}[{p.places(p.shape(u)[0], 4)}] {p.pick('=', '+=', '*=', '-=')} {p.term((4,))}")


@kind(1, cupy=False)
def fancy_write_of_a_matrix(p):
    m = p.writable(p.matrix())
    r, c = p.shape(m)
    at = p.pick(
        f"{p.places(r, 3)}, {p.places(c, 3)}",
        f":, {p.places(c, 2)}",
        f"{p.places(r, 2)}",
        f"{p.place(r)}, {p.places(c, 3)}",
    )
    p.line(f"{m}[{at}] {p.pick('=', '+=', '*=')} {p.term(p.shape(f'{m}[{at}]'))}")


@kind()
def masked_write(p):
    u = p.writable(p.vector())
    at = p.name("at")
    p.line(f"{at} = {p.mask(p.shape(u)[0])}")
    p.line(
        p.pick(
            f"{u}[{at}] = {p.element(p.any())}",
            f"{u}[{at}] *= {p.element(p.any())}",
            f"{u}[{at}] = {u}[::-1][{at}] * 0.8",
            f"{u}[{at}] += {u}[{at}]",
        )
    )


@kind(1)
def mask_of_values(p):
    u = p.writable(p.vector())
    n = p.shape(u)[0]
    ramp = [0.9, -0.9, 0.5, -0.4, 1.2, -1.5][:n] + [0.7] * (n - 6)
    p.line(f"{u}[...] = np.sin({u}) * 0.3 + np.array({ramp})")
    p.line(f"{u}[{u} > 0] *= {p.element(p.any())}")


@kind(1)
def copyto(p):
    u = p.writable(p.vector())
    n = p.shape(u)[0]
    p.line(f"np.copyto({u}, {p.term((n,))}{p.pick('', f', where={p.mask(n)}')})")


@kind(1)
def put(p):
    u = p.writable(p.vector(3))
    at = p.places(p.shape(u)[0], 3, distinct=True)
    p.line(p.pick(f"np.put({u}, {at}, {p.vector(3)}[:3])", f"{u}.put({at}, {p.vector(3)}[-3:])"))


@kind(1)
def fill(p):
    u = p.writable(p.any())
    p.line(
        p.pick(
            f"{u}.fill({p.copy(p.element(p.any()))})", f"{u}[...] = 0.4", f"{u}[...] = {p.copy(p.element(u))}"
        )
    )


@kind(1)
def fill_diagonal(p):
    m = p.writable(p.matrix())
    p.line(f"np.fill_diagonal({m}, {p.copy(p.element(p.any()))})")


@kind(1)
def flat(p):
    m = p.writable(p.matrix())
    p.line(f"{m}.flat[{p.place(p.value(m).size)}] = {p.copy(p.element(p.any()))}")


@kind(1, cupy=False)  # CuPy sorts contiguous arrays only
def sort(p):
    u = p.writable(p.vector())
    n = p.shape(u)[0]
    ramp = [0.6, 0.1, 1.1, -0.4, -0.9, 1.6][:n] + [2.1 + 0.5 * k for k in range(n - 6)]
    p.line(f"{u}[...] = np.sin({u}) * 0.2 + np.array({ramp})")
    p.line(f"{u}.sort()")


@kind()
def rows(p):
    m = p.writable(p.matrix())
    e = p.copy(p.element(p.any()))
    p.line(
        p.pick(
            f"for r in {m}:\n    r *= {p.pick('2', '0.7', e)}",
            f"for k, r in enumerate({m}):\n    r[k % {p.shape(m)[1]}] += {e}",
            f"for r, s in zip({m}, {m}[::-1]):\n    r += s * 0.5",
            f"for k in range(1, len({m})):\n    {m}[k] = np.sin({m}[k - 1]) + {m}[k] * 0.5",
        )
    )


@kind(1)
def elementwise_loop(p):
    u = p.writable(p.vector(2))
    p.line(
        f"for k in range(len({u}) - 1):\n    {u}[k + 1] {p.pick('=', '+=', '*=')} np.sin({u}[k]) * "
        f"{p.pick('0.9', f'{u}[k + 1]')}"
    )


@kind(1)
def twice(p):
    u = p.writable(p.vector(2))
    n = p.shape(u)[0]
    p.use("both")
    p.line(
        p.pick(
            f"both({u}, {u}, {p.place(n)}, {p.place(n)})", f"both({u}, {u}[::-1], {p.place(n)}, {p.place(n)})"
        )
    )


@kind(1, exact=False)
def complex_parts(p):
    u = p.vector(2)
    n, z = p.shape(u)[0], p.name("z")
    p.line(f"{z} = {u} + 1j * {p.fit((n,))}")
    for _ in range(2):
        p.line(
            p.pick(
                f"{z}.real[{p.place(n)}] = {p.element(p.any())} * 0.5",
                f"{z}.imag *= {p.element(p.any())}",
                f"{z}.imag[1:] += {z}.real[:-1]",
                f"{z} *= {z}[::-1] * (0.5 - 0.2j)",
                f"{z}.real = {p.fit((n,))}",
            )
        )
    p.new(p.pick(f"{z}.real", f"{z}.imag", f"({z} * {z}.conj()).real", f"{z}.real * {z}.imag"))
