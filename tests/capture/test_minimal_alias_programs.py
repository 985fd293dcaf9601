"""Programs that the random graphs, views and foreign writes found wrong in silence, each as small as it
became.

Each is right, or raises.  f has `x` of three elements and returns `s`; `red` and `fit` and the modules are
those of `judged_routes.PRELUDE`."""

import textwrap

import pytest
from judged_routes import Text, judge, report

FOUND = {
    # things that are given another array, by a route that is followed and one that is not
    "an attribute is given another array": (
        """
        class C:
            pass
        h = C()
        h.a = np.full(3, 0.3)
        values = {'k': h}.values()
        """,
        """
        h.a = h.a * x[1]
        s = s + red([*values][0].a)
        """,
        "h.a",
    ),
    "an entry of a dict, read by a map that was made outside": (
        """
        d = {'k': np.full(3, 0.4)}
        found = map(lambda k: d, itertools.count())
        """,
        """
        d['k'] = d['k'] + x
        s = s + red(next(found)['k']) * x[0]
        """,
        "d['k']",
    ),
    "an attribute of a module in an exception": (
        """
        m = types.ModuleType('route_m')
        m.a = np.full(3, 0.4)
        e = ValueError(m)
        """,
        """
        m.a = m.a * x
        s = s + red(e.args[0].a)
        """,
        "e.args[0].a",
    ),
    # what is stored where nothing is replaced
    "a holder in an iterator is given a tracked array": (
        """
        class C:
            pass
        h = C()
        h.a = np.full(3, 0.3)
        turn = iter([h] * 99)
        """,
        """
        next(turn).a = x * x
        s = s + red(next(turn).a)
        """,
        "h.a",
    ),
    "a holder in an iterator is given a plain array": (
        """
        class C:
            pass
        h = C()
        h.a = np.full(3, 0.3)
        turn = iter([h] * 99)
        """,
        """
        next(turn).a = np.full(3, 0.2)
        s = s + red(x)
        """,
        "h.a",
    ),
    "a list in a tuple subclass in a context variable": (
        """
        class T(tuple):
            pass
        pair = [0.5, np.full(3, 0.4)]
        var = contextvars.ContextVar('var', default=T((0.5, pair)))
        """,
        """
        var.get()[1][1] = var.get()[1][1] * x[1]
        s = s + red(pair[1])
        """,
        "pair[1]",
    ),
    "an ordered dict in an imported module": (
        """
        kept = collections.OrderedDict(k=np.full(3, 0.3))
        sys.modules['route_kept'] = types.ModuleType('route_kept')
        sys.modules['route_kept'].a = kept
        """,
        """
        importlib.import_module('route_kept').a['k'] = kept['k'] * x
        s = s + red(kept['k'])
        """,
        "kept['k']",
    ),
    "an item of a captured deque": (
        "d = collections.deque([np.full(3, 0.5)])",
        """
        d[0] = np.full(3, 0.3)
        s = s + red(d[0] * x)
        """,
        "d[0]",
    ),
    # other ways to the same object
    "an iterator in a thread's own namespace": (
        """
        a = np.full(3, 0.4)
        own = threading.local()
        own.a = iter([a] * 99)
        """,
        """
        a[...] = x * x
        s = s + red(next(own.a))
        """,
        "a",
    ),
    "halves of a tee": (
        """
        a = np.full(3, 0.4)
        first, second = itertools.tee(itertools.repeat(a))
        """,
        """
        a[...] *= 1.3
        s = s + red(next(second)) * x[2]
        """,
        "a",
    ),
    "a structured array of objects": (
        """
        a = np.full(3, 0.4)
        table = np.zeros(2, [('a', object), ('b', float)])
        table['a'][1] = a
        """,
        """
        a[...] = x * x
        s = s + red(table[1]['a'])
        """,
        "a",
    ),
    "the argument of an exception that is raised": (
        """
        a = np.full(3, 0.4)
        class C(Exception):
            pass
        def get(e=C(a)):
            try:
                raise e
            except C as found:
                return found.args[0]
        """,
        """
        a[...] = x * x
        s = s + red(get())
        """,
        "a",
    ),
    "the end of a slice": (
        """
        a = np.full(3, 0.4)
        part = slice(a)
        """,
        """
        a[...] = x * x
        s = s + red(part.stop)
        """,
        "a",
    ),
    "a bound method of a list": (
        """
        a = np.full(3, 0.4)
        get = [a].__getitem__
        """,
        """
        a[...] = x * x
        s = s + red(get(0))
        """,
        "a",
    ),
    "a copied context": (
        """
        a = np.full(3, 0.4)
        var = contextvars.ContextVar('var', default=a)
        context = contextvars.copy_context()
        """,
        """
        a[...] = x * x
        s = s + red(context.run(var.get))
        """,
        "a",
    ),
    "an array on an array": (
        """
        a = np.full(3, 0.4)
        class C(np.ndarray):
            pass
        c = np.zeros(2).view(C)
        c.a = a
        """,
        """
        a[...] = x * x
        s = s + red(c.a)
        """,
        "a",
    ),
    "a number of a class of its own is a factor": (
        """
        class C(float):
            pass
        two = C(2.0)
        """,
        "s = s + red(x * x) * two",
        "",
    ),
    "what a defaultdict makes": (
        """
        a = np.full(3, 0.4)
        d = collections.defaultdict(lambda: a)
        """,
        """
        a[...] = x * x
        s = s + red(d['new'])
        """,
        "a",
    ),
    "a vectorized function": (
        """
        a = np.full(3, 0.4)
        get = np.vectorize(lambda k: a, otypes=[object])
        """,
        """
        a[...] = x * x
        s = s + red(get(1)[()])
        """,
        "a",
    ),
    "a wrapped function asked for what it wraps": (
        """
        a = np.full(3, 0.4)
        def deco(g):
            @functools.wraps(g)
            def w():
                return g()
            return w
        @deco
        def get():
            return a
        """,
        """
        get.__wrapped__()[...] = x * x
        s = s + red(get())
        """,
        "a",
    ),
    # other ways to the same memory
    "memory of a ctypes array": (
        """
        a = np.linspace(0.1, 0.9, 8)[1:5].copy()
        twin = np.ctypeslib.as_array((ctypes.c_double * 4).from_buffer(a))
        """,
        """
        a[...] = 0.7
        a[1:] *= x
        s = s + red(twin)
        """,
        "a",
    ),
    "an array over a buffer of an array": (
        """
        a = np.array(0.5)
        twin = np.asarray(a.data)
        """,
        """
        a[...] = x[0] * x[1]
        s = s + twin ** 2
        """,
        "a",
    ),
    "an object with an array interface": (
        """
        a = np.full(3, 0.4)
        twin = np.asarray(types.SimpleNamespace(__array_interface__=a.__array_interface__, kept=a))
        """,
        """
        v = twin
        v *= x
        s = s + red(a)
        """,
        "a",
    ),
    "a view of windows made inside": (
        "a = np.full((3, 3), 0.3)",
        """
        w = np.lib.stride_tricks.sliding_window_view(a[:, 1], 2, 0)
        a[0] = x[2]
        s = s + red(w) * x[1]
        """,
        "a",
    ),
    "windows of the diagonal": (
        "a = np.full((3, 3), 0.3)",
        """
        w = np.lib.stride_tricks.sliding_window_view(np.diagonal(a), 1, -1)
        a[...] = fit(x, a) * 0.8
        s = s + red(w ** 2)
        """,
        "a",
    ),
    "a view by a dtype made inside": (
        "a = np.full((3, 3), 0.3)",
        """
        v = a.view('d')
        a[0] = x[2]
        s = s + red(v)
        """,
        "a",
    ),
    "the conjugate of a real array is the array": (
        "",
        """
        y = x * 1.0
        v = y.conj()
        y[...] = np.sin(x)
        s = s + red(v) * x[1]
        """,
        "",
    ),
    "a conjugate written by out=": (
        "",
        """
        y = np.zeros((3, 3))
        y[...] = x
        v = y.conjugate()
        np.sin(v, out=v)
        s = s + np.vdot(y, y)
        """,
        "",
    ),
    "an inner product of a buffer that is then written": (
        "",
        """
        y = np.zeros((2, 3))
        y[0] = x
        s = s + np.inner(y, y).sum()
        y[::-1] = y * 0.7
        """,
        "",
    ),
    "a full contraction, then a write through a view": (
        "",
        """
        y = np.full(6, 0.3)
        y[::2] = x
        s = s + np.tensordot(y, y, 1) * 0.4
        v = y[..., None]
        np.add(v, 0.1, out=v)
        """,
        "",
    ),
    "a Kronecker product of the argument": (
        "",
        """
        v = x[::2][..., None]
        np.add.at(v, 0, x[0])
        s = s + red(np.kron(x, x))
        v **= 2
        """,
        "",
    ),
    # writes by what knows nothing of tapegrad
    "an outer product of what is then masked": (
        "a = np.frombuffer(bytearray(np.full(3, 0.3).tobytes()))",
        """
        a[...] = x * 0.8
        s = s + (np.outer(a, x) ** 2).sum()
        a[a > 0.4] = 0.2
        """,
        "a",
    ),
    "bytes put into a view": (
        "a = np.array([0.3, 0.4, 0.5])",
        """
        s = s + (np.dot(a, x) ** 2).sum()
        a.view('V8')[...] = np.full(1, 0.7).view('V8')
        """,
        "a",
    ),
    "a write by way of a structured view": (
        "a = np.full(6, 0.3)\nimport numpy.lib.recfunctions",
        """
        s = s + (x * x * a[:3]).sum()
        np.lib.recfunctions.structured_to_unstructured(a.view([('a', float)]))[...] = 0.4
        """,
        "a",
    ),
    "a buffer's memory, of another captured alias": (
        "a = np.full((3, 2), 0.3)\nrow = a.reshape(-1)",
        """
        v = a[:, 0][1:]
        np.asarray(row.data)[...] = 0.4
        s = s + (x[:2] * v).sum()
        """,
        "a",
    ),
    "memory of an alias by ctypes": (
        "a = np.full(3, 0.3)\ntwin = np.asarray(a)",
        """
        s = s + (x ** 2 * a).sum()
        np.ctypeslib.as_array(twin.ctypes.data_as(ctypes.POINTER(ctypes.c_double)), (1,))[0] = 0.44
        """,
        "a",
    ),
    "a 0-d array by ctypes between two writes": (
        "a = np.array(0.6)",
        """
        y = np.sin(x)
        y -= a * x[1]
        ctypes.cast(a.ctypes.data, ctypes.POINTER(ctypes.c_double))[0] = 0.8
        s = s + red(y)
        """,
        "a",
    ),
    "rows shuffled by a legacy generator": (
        "a = np.arange(6.0).reshape(3, 2) * 0.1",
        """
        np.random.RandomState(2).shuffle(a)
        s = s + (a[:, 0] * x).sum()
        """,
        "a",
    ),
    "rows shuffled, read through an alias": (
        "a = np.linspace(0.1, 0.9, 9).reshape(3, 3)\ntwin = np.asarray(a)",
        """
        np.random.default_rng(0).shuffle(a)
        s = s + (fit(x, twin) * twin).sum()
        """,
        "a",
    ),
    "an index of put_along_axis that is negated": (
        "a = np.linspace(0.1, 0.8, 3)\ni = np.array([2, 0])",
        """
        np.put_along_axis(a, i, x[:1], -1)
        s = s + red(a * a)
        np.logical_not(i, out=i)
        """,
        "a, i",
    ),
    "weights of a count": (
        "i = np.array([1, 1, 0])",
        "s = s + np.bincount(i, x ** 2) @ np.arange(1.0, 3.0)",
        "",
    ),
    "two buffers exchanged after an inner product": (
        "a = np.linspace(0.1, 0.5, 3)",
        """
        y = x * 1.0
        s = s + np.inner(y, x) ** 2
        a[...], y[...] = y, a.copy()
        """,
        "a",
    ),
    "a zero-dimensional array of a number, and an alias of it": (
        "",
        """
        y = np.array(x[0] * x[1])
        v = np.squeeze(y)
        y **= 2
        s = s + v * v
        """,
        "",
    ),
    "a zero-dimensional array, scaled through an alias": (
        "",
        """
        y = np.array(x[0] * x[1])
        v = np.asfortranarray(y, None)
        np.multiply(v, x[2] + 0.5, out=v)
        s = s + np.tensordot(y, y, np.ndim(y))
        """,
        "",
    ),
    "a grid that is not copied": (
        "a = np.linspace(0.1, 0.8, 8)[::2]",
        """
        v = np.meshgrid(a, -1, copy=False)[0]
        np.copyto(v, fit(x, v))
        s = s + (a * a).sum()
        """,
        "a",
    ),
    "an open grid that is not copied": (
        "",
        """
        y = np.array([x[0], x[1] * x[2], 0.5])
        u = y[::-1]
        v = np.meshgrid(u, u, copy=False, sparse=True)[1][::-1][-1:]
        v[...] *= 1.1
        s = s + (y * y).sum()
        """,
        "",
    ),
    "numbers made an index of": (
        "",
        """
        y = x * 1.0
        v = np.ix_(y, (1, 0))[0]
        s = s + (v * v).sum()
        """,
        "",
    ),
    "a transform of no axes": (
        "a = np.array(0.4)",
        """
        v = np.fft.ifftn(a)
        a[...] *= 1.1
        s = s + red(np.convolve(v, x))
        """,
        "a",
    ),
    "a view that a checkpoint read, written afterwards": (
        "a = np.linspace(0.1, 0.9, 9).reshape(3, 3)\nv = a[..., 0]",
        """
        s = s + tg.checkpoint(lambda z: z * z * v)(x).sum()
        v[...] = np.where(np.array([1, 0, 2]), x, v)
        """,
        "v",
    ),
    "a mask taken for indices": (
        "i = np.array([True, False, True])",
        "s = s + red(np.take(x, i) ** 2)",
        "i",
    ),
    "the memory of a Fortran array": (
        "a = np.full((3, 2), 0.3, order='F')",
        """
        np.asarray(a.data)[..., 0] = 0.4
        s = s + (fit(x, a) * a).sum()
        """,
        "a",
    ),
    "the memory of a strided view": (
        "a = np.linspace(0.1, 0.8, 6)[::2]\nv = a.view()",
        """
        np.asarray(v.data)[...] = 0.4
        s = s + (x * v).sum()
        """,
        "a",
    ),
    "a reversed Fortran array, differentiated twice": (
        "a = np.full((3, 2), 0.3, order='F')\nrev = a[::-1]",
        """
        np.copyto(a, fit(x, a) ** 2)
        s = s + red(rev) * x[1]
        """,
        "a",
    ),
    "elements permuted in the order of memory": (
        "a = np.linspace(0.1, 0.9, 9).reshape(3, 3)",
        """
        v = a.T
        v -= v * x[1]
        np.random.default_rng(5).permuted(v, out=v)
        s = s + (fit(x, v) * v).sum()
        """,
        "a",
    ),
    "an open mesh of a captured vector": (
        "a = np.linspace(0.1, 0.4, 3)",
        """
        v = np.ix_(a, (0, 1))[0]
        v[...] = v * v
        s = s + (a * x).sum()
        """,
        "a",
    ),
    "an object array that copyto writes": (
        "y = np.array([0.2, 0.3, 0.4])",
        """
        a = x.astype(object)
        np.copyto(a, y ** 2, where=np.array([True, False, True]))
        s = s + (a * x).sum()
        """,
        "",
    ),
    "memory in other hands in a checkpoint": (
        "",
        """
        v = (np.ones(3) * 0.7).getfield(float)
        s = s + tg.checkpoint(lambda u: u * u * v)(x).sum()
        """,
        "",
    ),
    "views by the class and dtype that an array has": (
        "",
        """
        y = x * 1.0
        v, w, u = y.view(), y.view(np.ndarray), y.view(float)
        y *= x
        s = s + red(v) + red(w * w) + red(u)
        """,
        "",
    ),
    "an array without axes, written in every way": (
        "",
        """
        y = np.array(x[0] * x[1])
        v = y.reshape(1)
        y[...] *= 1.1
        y[()] = y * x[2]
        y[y > -5] *= 0.9
        y[None] = y + 0.1
        y.flat[0] = v[0] * x[1]
        np.put(y, [0], y * 2.0)
        np.add.at(y, (), y)
        y.ravel()[-1:] = v * v
        s = s + v.sum() * x[2] + y
        """,
        "",
    ),
    "a mask in place of integers": (
        "i = np.array([True, False, True])",
        """
        s = s + np.bincount(i, x ** 2) @ np.arange(1.0, 3.0) + red(np.insert(x, i, x[0]))
        s = s + (np.choose(i, [x, x * x]) * x[2]).sum() + red(np.repeat(x, i))
        """,
        "i",
    ),
    # numbers that things hold
    "a number of a class, read through a context variable": (
        """
        class C:
            a = 0.5
        var = contextvars.ContextVar('var', default=types.SimpleNamespace(b=C))
        """,
        """
        C.a = C.a + x[0]
        s = s + var.get().b.a * x[2]
        """,
        "C.a",
    ),
    "a number of a function, read through a generator": (
        """
        def g():
            pass
        g.a = 0.5
        turn = (h for h in itertools.repeat(g))
        """,
        """
        g.a = g.a + x[0]
        s = s + red(x * next(turn).a)
        """,
        "g.a",
    ),
    "a number of a thread": (
        "own = threading.local()\nown.a = 0.5",
        """
        own.a *= x[1]
        s = s + own.a * x[0]
        """,
        "own.a",
    ),
    "a number in an object array, read through a bound method": (
        """
        pair = np.empty(2, object)
        pair[1] = 0.5
        get = itertools.repeat(pair).__next__
        """,
        """
        get()[1] = x[0] * x[1]
        s = s + pair[1] * x[2]
        """,
        "pair[1]",
    ),
    "a member of an enumeration, read through a cycle": (
        """
        class E(enum.Enum):
            A = 1
        E.A.a = 0.5
        turn = itertools.cycle([E.A])
        """,
        """
        E.A.a = x[0] * x[1]
        s = s + next(turn).a * x[2]
        """,
        "E.A.a",
    ),
    "a module that f imports, in second order": (
        """
        @dataclasses.dataclass
        class C:
            a: object
        c = C(np.linspace(0.2, 0.8, 4))
        def get():
            return c
        sys.modules['route_m'] = types.ModuleType('route_m')
        sys.modules['route_m'].a = {get}
        box = types.SimpleNamespace(a=c)
        def imported():
            import route_m
            return [*route_m.a][0]()
        """,
        """
        imported().a = imported().a * x[1]
        w = imported().a
        w *= x[0]
        s = s + red(box.a.a)
        """,
        "box.a.a",
    ),
    "an attribute by a global and by an outer function's variable, in second order": (
        """
        class C:
            pass
        h = C()
        h.a = np.full(3, 0.3)
        sys.modules['route_m'] = types.ModuleType('route_m')
        sys.modules['route_m'].a = h
        def get(h=h):
            import route_m
            return route_m.a
        """,
        """
        h.a = h.a * x[0]
        s = s + red(get().a ** 2) * x[1]
        """,
        "h.a",
    ),
    "add.at through a view of an array in Fortran order": (
        """
        buf = np.asfortranarray(np.full((3, 2), 0.4))
        part = buf[:]
        """,
        """
        np.add.at(part, 0, x[1])
        s = s + red(buf)
        """,
        "buf",
    ),
    "a Variable that was stored before the holder is met": (
        """
        d = {'k': np.full(3, 0.4)}
        turn = itertools.repeat(d)
        """,
        """
        next(turn)['k'] = np.full(3, 0.3)
        s = s + red(d['k']) * x[0]
        """,
        "d['k']",
    ),
    # what the user's own function alters when it runs for its cache
    "a cached method that alters its object": (
        """
        class C:
            def __init__(self):
                self.n, self.a = 0, np.full(3, 0.4)
            @functools.lru_cache(None)
            def size(self, k):
                self.n += 1
                return k * 0.5
        h = C()
        """,
        """
        s = s + h.size(2) * h.n * red(h.a * x)
        """,
        "h.n",
    ),
    "a cached method that loads what was None": (
        """
        class C:
            a = None
            @functools.lru_cache(8)
            def load(self):
                self.a = np.full(3, 0.3)
                return 1
        h = C()
        """,
        """
        h.load()
        s = s + red(h.a * x)
        """,
        "h.a",
    ),
    "a cached function that alters an array": (
        """
        a = np.full(3, 0.4)
        @functools.lru_cache(None)
        def raised(k):
            a[:] += k
            return k
        """,
        """
        s = s + red(a * x)
        s = s * raised(0.5) + red(a * x)
        """,
        "a",
    ),
    "a cached function that appends to a list": (
        """
        made = [np.full(3, 0.4)]
        @functools.lru_cache(None)
        def more(k):
            made.append(np.full(3, k))
            return k
        """,
        """
        s = s + red(made[0] * x) * more(0.3) * len(made) + red(made[-1])
        """,
        "made",
    ),
    "a cached function that counts in a class": (
        """
        class Calls:
            count = 0
        @functools.lru_cache(None)
        def counted(k):
            Calls.count += 1
            return k
        """,
        """
        before = Calls.count
        s = s + counted(0.3) * (Calls.count - before) * red(x)
        """,
        "Calls.count",
    ),
    "an attribute that was None is bound by a generator": (
        """
        class C:
            pass
        h = C()
        h.a, h.b = None, np.full(3, 0.4)
        def binding():
            while True:
                h.a = np.full(3, 0.2)
                yield
        turn = binding()
        """,
        """
        first = h.a
        next(turn)
        s = s + red(x) * (1 if h.a is None else 2)
        """,
        "h.a",
    ),
}


@pytest.mark.parametrize("closure", [False, True], ids=["module", "closure"])
@pytest.mark.parametrize("name", FOUND)
def test_found(name, closure):
    head, body, shown = [textwrap.dedent(part).strip() for part in FOUND[name]]
    text = Text((head,), (body,), tuple(shown.split(", ")) if shown else (), (), closure)
    verdict = judge(text)
    if verdict.silent():
        pytest.fail(report(text), pytrace=False)
    assert verdict.outcome() in ("right", "loud", "raised")
