"""Kinds of statement that make new values and views."""

from random_writer import NoFit, kind

# values


@kind()
def product(p):
    u = p.any()
    p.new(f"{u} * {p.fit(p.shape(u))}")


@kind()
def unary(p):
    u = p.any()
    p.new(
        p.pick(
            "np.sin({})",
            "np.exp({} * 0.1)",
            "np.tanh({})",
            "-{}",
            "{} + 0.3",
            "{} - 0.1",
            "np.sqrt({0} * {0} + 1.3)",
            "{} ** 2",
        ).format(u)
    )


@kind()
def combination(p):
    u = p.any()
    p.new(f"{p.pick('0.5', '1.0', p.element(p.any()))} * {u} {p.pick('+', '-')} {p.fit(p.shape(u))} * 0.4")


@kind(1)
def quotient(p):
    u = p.any()
    e = p.fit(p.shape(u))
    p.new(f"{u} / ({e} * {e} + 2.5)")


@kind(1)
def chosen(p):
    u = p.vector()
    p.new(f"np.where({p.mask(p.shape(u)[0])}, {u}, {p.term(p.shape(u))})")


@kind(1)
def copied(p):
    u = p.any()
    p.new(p.pick("{}.copy()", "np.copy({})", "np.zeros_like({0}) + {0}", "{} * 1.0").format(u))


@kind(1, bare=False)
def converted(p):
    u = p.any()
    p.new(
        p.pick(
            "np.array({})",
            "np.asarray({})",
            "np.asfortranarray({})",
            "np.ascontiguousarray({})",
            'np.array({}, order="F")',
        ).format(u)
    )


@kind(1)
def gathered(p):
    u = p.vector()
    p.new(f"{u}[{p.places(p.shape(u)[0], p.rng.randint(1, 4))}]")


@kind(1)
def masked(p):
    u = p.vector(2)
    n = p.shape(u)[0]
    at = f"np.arange({n}) != {p.rng.randrange(n)}"
    p.new(f"{u}[{at}] * {p.element(p.any())}")


@kind(1)
def joined(p):
    u, w = p.vector(), p.vector()
    p.new(
        p.pick(
            f"np.concatenate(({u}, {w}))[:6]",
            f"np.stack([{u}, {u} * 0.5])",
            f"np.hstack(({w}, {p.element(u)}))[-5:]",
        )
    )


@kind(1)
def reduced(p):
    m = p.matrix()
    p.new(
        p.pick(
            f"{m}.sum(0)",
            f"np.mean({m}, axis=1)",
            f"{m}.sum(axis=-1, keepdims=True)",
            f"np.cumsum({m}, axis=0)",
        )
    )


@kind(1)
def matrix_product(p):
    m = p.matrix()
    n = p.shape(m)[1]
    w = p.pick(f"{m}.T", f"np.sin({m}).T", f"{m}[:, ::-1].T", f"np.linspace(0.1, 0.4, {n})", f"{m}[0]")
    p.new(f"{m} @ {w} * 0.5")


@kind(2)
def several_operands(p):
    u = p.vector()
    n = p.shape(u)[0]
    others = [w for w in p.pool if p.shape(w) == (n,)]
    v, w = p.pick(*others), p.pick(*others)
    p.new(p.pick(f'np.einsum("i,i,i->i", {u}, {v}, {w})', f'np.einsum("i,i,j->j", {u}, {v}, {w}) * 0.3'))


@kind(1)
def comprehension(p):
    m = p.matrix()
    p.new(f"np.stack([r * {p.element(p.any())} for r in {m}])")


@kind(1)
def generator(p):
    u, w = p.vector(), p.any()
    p.new(f"{w} * 0.1 * sum({u}[k] * (k + 1) for k in range({p.shape(u)[0]}))")


# views


@kind(4)
def view(p):
    u = p.any()
    at = p.region(u, 1)
    if not 1 <= len(p.shape(u + at)) <= 2:
        raise NoFit
    p.new(u + at)


@kind()
def view_of_a_view(p):
    u = p.vector(3)
    p.new(
        p.pick(f"{u}[1:][::-1]", f"{u}[::-1][1:]", f"{u}[:3][::2]", f"{u}[::-1][::2]", f"{u}[None, :][0, 1:]")
    )


@kind()
def reshaped(p):
    u = p.vector(4)
    p.new(
        p.pick(
            f"{u}[:4].reshape(2, 2)",
            f"{u}[:4].reshape((2, 2)).T",
            f"{u}[-4:].reshape(2, -1)",
            f'{u}[:4].reshape((2, 2), order="F")',
        )
    )


@kind()
def flattened(p):
    m = p.matrix()
    p.new(
        p.pick(
            f"{m}.reshape(-1)",
            f"{m}.ravel()",
            f"{m}.T.reshape(-1)",
            f"{m}.flatten()",
            f'{m}.ravel(order="F")',
        )
    )


@kind()
def transposed(p):
    m = p.matrix()
    p.new(
        p.pick(
            f"{m}.T",
            f"np.swapaxes({m}, 0, 1)",
            f"{m}.transpose(1, 0)",
            f"np.flip({m}, 0)",
            f"np.moveaxis({m}, 0, 1)",
        )
    )


@kind(1)
def fortran(p):
    m = p.matrix()
    p.new(p.pick(f'{m}.copy(order="F")', f"np.copy({m}.T)", f"np.sin({m}.T)", f"({m} * {m}).T"))


@kind(1)
def diagonal(p):
    m = p.matrix()
    p.new(p.pick(f"{m}.diagonal()", f"np.diagonal({m})", f"np.diag({m})"))


@kind(1)
def stepped_diagonal(p):
    m = p.matrix(square=True)
    n = p.shape(m)[0]
    p.new(f"{m}.reshape(-1)[::{n + 1}]")


@kind(1, bare=False)
def broadcast(p):
    u = p.vector()
    p.new(f"np.broadcast_to({u}, (2, {p.shape(u)[0]}))")


@kind(1)
def split(p):
    u = p.vector(4)
    a, b = p.name("a"), p.name("a")
    p.line(f"{a}, {b} = np.split({u}[:4], 2)")
    p.pool += [a, b]
