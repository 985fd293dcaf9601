"""Kinds of statement with arrays made inside, captured arrays, plain arrays that change, and transforms
inside."""

import numpy as np
from random_writer import NoFit, kind

# arrays made inside


@kind(2, bare=False)
def made(p):
    u = p.any()
    n = p.shape(u)
    e = p.term(n)
    b = p.new(
        p.pick(
            f"np.zeros({n})",
            f"np.full({n}, 0.3)",
            f"np.ones({n})",
            f"np.empty_like({u})",
            f'np.zeros({n}, order="F")',
        )
    )
    p.line(f"{b}[...] = {e}")
    if p.chance(0.5):
        at = p.region(b)
        p.line(f"{b}{at} {p.pick('=', '-=')} {p.term(p.shape(b + at))}")


@kind(1, bare=False)
def filled(p):
    u = p.vector()
    p.use("fill")
    b = p.new(f"np.empty({p.shape(u)[0]})")
    p.line(f"fill({b}, {u})")


@kind(1, bare=False)
def trajectory(p):
    u = p.vector(2)
    b = p.new("np.zeros((4, 2))")
    p.line(f"{b}[0] = {u}[:2]")
    p.line(f"for k in range(3):\n    {b}[k + 1] = np.sin({b}[k]) * 0.9 + {b}[k, ::-1] * {p.element(p.any())}")


# captured arrays


@kind(2, bare=False)
def buffer(p):
    buf = p.use("buf")
    u = p.vector()
    k = min(5, p.shape(u)[0])
    p.line(
        p.pick(
            f"{buf}[:{k}] = {u}[:{k}]",
            f"{buf}[...] *= {p.element(p.any())}",
            f"{buf}[1:] += {buf}[:-1]",
            f"{buf}[-{k}:] -= {u}[:{k}] * 0.5",
        )
    )
    if p.chance(0.4):
        p.new(p.pick(f"{buf} * 1.0", f"{buf}[::-1]", f"{buf}[1:]"))


@kind(1, bare=False)
def buffer_view(p):
    part = p.use("part")
    p.line(
        p.pick(
            f"{part}[:] = {part} * {p.element(p.any())}",
            f"{part}[1:] += {part}[:-1]",
            f"{part}[...] -= 0.1",
            f"{part}[...] = {p.term((3,))}",
        )
    )
    p.new(p.pick(f"{part} + buf[:3]", f"{part}[::-1]", "buf[2:]"))


@kind(1, bare=False)
def fortran_buffer(p):
    fbuf, frow = p.use("fbuf"), p.use("frow")
    p.line(
        p.pick(
            f"{fbuf}[:, 0] = {p.element(p.any())}",
            f"{frow}[1:] = {frow}[:-1] * {p.element(p.any())}",
            f"{fbuf}[0] += {frow}[:2]",
            f"{fbuf}[...] *= 0.8",
        )
    )
    p.new(
        p.pick(f"{fbuf}[0]", f"{fbuf}.T.reshape(-1)[:5]", f"{frow} * 0.5", f"{fbuf} * {p.element(p.any())}")
    )


@kind(1, bare=False)
def list_of_buffers(p):
    pair = p.use("pair")
    p.line(
        p.pick(
            f"{pair}[0][:2] = {p.term((2,))}",
            f"{pair}[1][0] = {pair}[0][:2] * {p.element(p.any())}",
            f"for b in {pair}:\n    b *= {p.element(p.any())}",
            f"{pair}[1] = {pair}[1] * {p.element(p.any())}",
        )
    )
    p.new(p.pick(f"{pair}[0]", f"{pair}[1]", f"{pair}[1] @ {pair}[0][1:3]"))


@kind(1, bare=False)
def dict_of_buffers(p):
    d = p.use("named")
    p.line(
        p.pick(
            f'{d}["a"][1] = {p.copy(p.element(p.any()))}',
            f'{d}["b"][:2] += {p.term((2,))}',
            f'{d}["a"] = {d}["a"] * {p.element(p.any())}',
        )
    )
    p.new(p.pick(f'{d}["a"] + 0.1', f'{d}["b"]', "buf * 0.5"))


@kind(1, bare=False)
def attributes(p):
    box = p.use("box")
    p.line(
        p.pick(
            f"{box}.step({p.copy(p.element(p.any()))}, {p.place(4)})",
            f"{box}.field *= {p.element(p.any())}",
            f"{box}.field = {box}.field + {p.fit((4,))}",
            f"{box}.last = {p.copy(p.element(p.any()))} + {box}.last",
        )
    )
    p.new(p.pick(f"{box}.field[::2]", f"{box}.field * {box}.last", f"{box}.field"))


@kind(1, bare=False)
def default_argument(p):
    work = p.use("work")
    p.line(
        p.pick(
            f"{work}[1:] *= {p.element(p.any())}",
            f"{work}[...] = {p.term((4,))}",
            f"{work}[::2] = {work}[1::2]",
        )
    )
    p.new(f"{work}{p.pick('[::-1]', '[1:]', ' * 0.5')}")


@kind(1, bare=False)
def global_array(p):
    shared = p.use("shared")
    p.line(
        p.pick(
            f"{shared}[0] = {p.term((3,))}",
            f"{shared}[:, 1] += {p.term((2,))}",
            f"{shared}[1] *= {shared}[0]",
            f"{shared}.T[0] = {p.element(p.any())}",
        )
    )
    p.new(p.pick(f"{shared}", f"{shared}[1]", f"{shared}.T @ {shared} * 0.3"))


@kind(1, bare=False)
def rebound_nonlocal(p):
    p.use("remember")
    p.new(f"{p.any()} * remember({p.copy(p.element(p.any()))})")


@kind(1, bare=False)
def appended(p):
    log, u = p.use("log"), p.vector(2)
    p.line(f"{log}.append({p.pick(f'{u} * 1.0', f'{u}.copy()', f'{u}[::-1] * 0.5', f'({u} * 0.5)[1:]')})")
    p.new(f"{log}[-1] + {log}[0].sum()")


# plain arrays that change on the way


@kind(2)
def plain_operand(p):
    u = p.any()
    n = p.shape(u)[-1]
    c = p.pick("c", "c[::-1]") if n <= 6 else None
    if c is None:
        raise NoFit
    p.new(
        p.pick(
            f"{u} * {c}[:{n}]",
            f"{u} + {c}[:{n}] * {p.fit(p.shape(u))}",
            f"{u} / (1.5 + {c}[:{n}])",
            f"np.sin({c}[:{n}] * {u})",
        )
    )


@kind(2)
def plain_changed(p):
    p.line(
        p.pick(
            "c *= 1.3",
            f"c[{p.place(6)}] = 0.2",
            "c[1:] = c[:-1].copy()",
            "c -= 0.05",
            "c[...] = c[::-1].copy()",
        )
    )


@kind(1)
def plain_written(p):
    u = p.writable(p.vector())
    n = min(6, p.shape(u)[0])
    p.line(p.pick(f"{u}[:{n}] = c[:{n}]", f"{u}[:{n}] = c[:{n}] * {p.term((n,))}", f"{u}[:{n}] += c[:{n}]"))


# transforms inside


def inner_function(p, z: str, *lines: str) -> str:
    h = p.name("h")
    p.line(f"def {h}({z}):\n" + "\n".join("    " + line for line in lines))
    return h


def apart(p, argument: str, captured: str) -> str:
    """An argument that does not share memory with what the function captures and writes: tapegrad refuses
    that."""
    return f"({argument} * 1.0)" if np.shares_memory(p.value(argument), p.value(captured)) else argument


def held(p) -> str:
    return p.copy(p.element(p.any()))


@kind(1, exact=False, bare=False)
def inner_gradient(p):
    u, w = p.writable(p.vector(2)), p.vector()
    n = p.shape(u)[0]
    h = inner_function(
        p,
        "z",
        f"{u}[{p.place(n)}] = z * {p.element(w)}",
        f"s = {u}[0] * z",
        f"{u}[0] = s * 0.5",
        f"return s * s + ({u} * z).sum()",
    )
    p.new(f"tg.grad({h})({held(p)}) * {p.any()}")


@kind(1, exact=False, bare=False)
def inner_gradient_with_views(p):
    u, w = p.writable(p.vector(2)), p.writable(p.vector(2))
    n, k = p.shape(u)[0], p.rng.randint(1, 2)
    h = inner_function(
        p,
        "z",
        f"p = {u}[:{k}]",
        p.pick(f"s = (p * z * {w}[:{k}]).sum()", f's = np.einsum("i,i,->", p, {w}[:{k}], z)'),
        f"{w}[{p.place(2)}] = s * z",
        f"{u}[{p.place(n)}] = 0.5 * z",
        "p *= z",
        f"return s * s + ({u} * z).sum()",
    )
    p.new(f"tg.grad({h})({held(p)}) * {u}")


@kind(1, exact=False, bare=False)
def inner_gradient_with_a_holder(p):
    """The inner function puts something into a list or dict that f has made: the arrays in it stay the ones
    that f knows."""
    w, d = p.any(), p.name("d")
    u = (
        p.new(p.pick("np.full(3, 0.4)", "np.zeros(2)")) if p.chance(0.7) else p.writable(p.vector(2))
    )  # nothing tracked in it yet
    make, put, got = p.pick(
        ("[{u}]", "{d}.append({s})", "{d}[1]"),
        ("[{u}, 0.5]", "{d}[1] = {s}", "{d}[1]"),
        ("[{u}, [0.5]]", "{d}[1] = [{s}]", "{d}[1][0]"),
        ('{{0: {u}, "s": 0.5}}', '{d}["s"] = {s}', '{d}["s"]'),
        ("{{0: {u}}}", "{d}.update(s={s})", '{d}["s"]'),
    )
    p.line(f"{d} = {make.format(u=u)}")
    lines = [put.format(d=d, s=f"z * {p.element(w)}")]
    if p.chance(0.5):
        lines.insert(p.pick(0, 1), f"{d}[0][{p.place(p.shape(u)[0])}] = z * {p.element(w)}")
    h = inner_function(p, "z", *lines, f"return {got.format(d=d)} * z * z + ({d}[0] * z).sum()")
    p.new(f"tg.grad({h})({held(p)}) * {p.any()}")
    one, other = p.pick((u, f"{d}[0]"), (f"{d}[0]", u))
    p.line(f"{one}[{p.place(p.shape(u)[0])}] = {p.element(p.any())} * 0.7")
    p.new(f"{other} * 1.0")


@kind(1, exact=False, bare=False)
def inner_gradient_two_levels(p):
    u, w = p.writable(p.vector(2)), p.any()
    i = p.place(p.shape(u)[0])
    h = p.name("h")
    p.line(
        f"""
def {h}(z):
    def inner(y):
        {u}[{i}] = y * z * {p.element(w)}
        return {u}[{i}] * y + {u}[0] * z
    s = tg.grad(inner)(z * 1.0)
    return s * z + {u}[{i}]
"""
    )
    p.new(f"tg.grad({h})({held(p)}) * {p.any()}")


@kind(1, exact=False, bare=False)
def inner_gradient_of_a_vector(p):
    buf, u = p.use("buf"), p.vector(2)
    h = inner_function(
        p,
        "z",
        f"{buf}[1:3] = z[:1] * {p.element(p.any())}",
        f"z[0] = {buf}[{p.place(5)}]",
        f"return ({buf} * {buf}).sum() * z[0] + (z * z * z).sum()",
    )
    p.new(f"tg.grad({h})({u} * 1.0)")  # h writes its argument: an array of its own, for h may read any other


@kind(1, exact=False, bare=False)
def inner_jvp(p):
    u = p.writable(p.vector(2))
    n = p.shape(u)[0]
    h = inner_function(
        p, "z", f"{u}[{p.place(n)}] = z * {p.element(p.any())}", f"{u}[1:] *= z", f"return {u} * z"
    )
    y, t = p.name("y"), p.name("a")
    p.line(f"{y}, {t} = tg.jvp({h}, ({held(p)},), ({held(p)},))")
    p.pool.append(t)
    if p.chance(0.5):
        p.line(f"{t}[{p.place(n)}] = {y}[0] * {p.element(u)}")


@kind(1, exact=False, bare=False)
def inner_pullback(p):
    u = p.writable(p.vector(2))
    w = apart(p, p.vector(2), u)
    n = p.shape(w)[0]
    h = inner_function(
        p,
        "z",
        f"{u}[{p.place(p.shape(u)[0])}] = z[0] * z[1]",
        "z[1:] += z[:-1]",
        f"return np.sin(z) * {u}[0]",
    )
    y, back = p.name("a"), p.name("back")
    p.line(f"{y}, {back} = tg.vjp({h}, {w})")
    p.pool.append(y)
    p.line(f"{y}[0] = {p.element(u)} * 0.5")
    p.new(f"{back}({p.term((n,))} + np.zeros({n}))")
    if p.chance(0.5):
        p.line(f"{u}[0] *= 0.5")
        p.new(f"{back}({y})")


@kind(1, exact=False, bare=False)
def inner_hvp(p):
    u = p.writable(p.vector(2))
    h = inner_function(
        p, "z", f"{u}[:2] = z[:2] * {p.element(p.any())}", "z *= z", f"return ({u}[:2] * z[:2]).sum() + z[0]"
    )
    p.new(f"tg.hvp({h}, {p.vector(2)}[:2] * 1.0, {p.vector(2)}[:2] * 0.5)")
