"""Who may look at the values under a Variable, over the whole package.

A value that is taken past a trace that hides it (batching, recording) is a wrong number in silence.  So
`values_of` asks the trace, and stands where nothing but values will do; `bottom` and `_value` go past it, and
stand where the engine handles memory and layout; what `layout_of` gives is used for its layout only."""

import ast

import pytest
from layers import trees

# `values_of`: the shape of a result, a Python number or memory in other hands depends on values.
ASKING = {
    "_scipy.integrate.ivp_kernel": "numbers of rows, which no transform watches",
    "_transforms.call": "a direction without a trace",
    "_transforms.batching.trace": "what is the same for all samples",
    "_core.lent_memory": "what is written into memory in other hands",
    "implicit.sequential": "memory in other hands, whether it was written",
    "implicit": "what a solver is given, and gave",
    "_core.primitive": "where it stands; the truth of an array",
    "_scipy.linear_routines": "the dtypes of arrays, which choose a routine",
    "_scipy.namespaces": "functions without a derivative, and on untracked arrays",
    "_dispatch.structured": "values of all fields, for texts and comparisons",
    "_dispatch.numbers": "functions whose derivative is zero, texts",
    "_dispatch.random": "probabilities of NumPy's generators",
    "_transforms.forward_state": "arguments of a function with a rule, which is run again",
    "_transforms.custom_rule": "arguments of such a function; what all samples gave beside what the first one gave",
    "statespace._observations": "parameters without a trace",
    "testing.derivative_checks": "checks compare values",
    "kernels.generated.arguments": "data, which are constant",
    "kernels.generated.kernel": "the sum of squares at a fixed point; a check of finite terms",
    "kernels.generated.map": "marked constants",
    "kernels.library.autoregression": "a check of missing data",
    "kernels.library.carma": "checks; parameters at which roots are found",
    "kernels.library.celerite": "checks of times and variances",
    "kernels.library.filters": "matrices that are constant",
    "kernels.raw_code.check": "checks compare values",
    "kernels.raw_code.kernel": "what a launch is given",
    "_capture.dependencies.walk": "fingerprints of constants",
    "replay.record.recorder": "constants of a recording",
    "ops.variable_methods": "int(x), operator.index(x), memory and numbers of untracked arrays",
    "ops.protocols": "functions on untracked arrays",
    "ops.creation": "lengths of ranges, plain results of untracked numbers",
    "ops.linalg.degenerate_spectra": "which eigenvalues are equal",
    "ops.piecewise": "where(condition), whose shape depends on values",
    "ops.indexing.gathering": "indices, counts, and masks that make shapes",
    "ops.linalg.norms": "the order of a norm",
    "ops.indexing.traced_indices": "indices that are the same for all samples",
    "ops.sorting": "unique and bincount, whose shape depends on values",
    "ops.coefficients": "sets and remainders, whose shape depends on values",
    "ops.special.mathieu_spheroidal": "orders of functions",
    "ops.special.ellipsoidal": "degrees; the order of eigenvalues",
    "ops.linalg.schur": "signs, pivots and the order of eigenvalues",
    "ops.histograms": "which cells elements are in",
    "ops.special.kolmogorov": "sizes of samples",
    "ops.special.orthogonal_polynomials": "degrees",
    "ops.special.gamma": "orders of functions",
    "ops.special.error_functions": "orders of functions",
    "ops.linalg.decompositions": "pivots; tolerances that are numbers",
    "ops.statistics": "the place of a quantile",
    "stats._multivariate": "the rank of a constant covariance",
    "ops.indexing.traced_masks": "what is left of chosen elements after the transform",
    "ops.indexing.views": "indices, shapes",
    "ops.indexing.writes": "plain targets",
    "ops.zero_derivative": "nonzero, texts",
    "testing.diagnostics.audit": "numbers that are compared, of calls that have ended",
    "_transforms.tape": "a value that was written since",
    "_transforms.dual_numbers": "numbers of Duals",
    "optimize._flat": "starts of searches, which must not be tracked",
    "stats._integrated": "counts",
    "_scipy.statistics": "which pairs of points differ",
    "optimize._constrained": "the start of a search",
    "loops.operation": "whole numbers, of which lengths are made",
    "_scipy.plain_values": "what SciPy's solver is given",
    "_dispatch.subarrays": "an untracked array that NumPy's code asks for",
    "_dispatch.serialization": "what texts and files hold",
    "_capture.tables": "which numbers of a column are missing, and their order",
    "loops.cuda_c.derived_rules": "arguments without a derivative",
    "loops.cuda_c.kernels": "arguments without a derivative",
    "ode._arguments": "the order of times",
}
# `bottom` and `_value`: layout, memory and the levels of a handle.
PASSING = {
    "_core.variable": "where they stand",
    "ops.layouts": "how operands and results lie",
    "ops.indexing.flags": "the abstract value of an array whose flag is set",
    "replay.record.recorder": "captured arrays become its own",
    "replay.record.recording": "results",
    "_core.primitive": "levels, views and writes",
    "_transforms.batching.watched_traces": "what each level holds, shown to who watches",
    "testing.diagnostics.profile": "memory that is kept",
    "testing.diagnostics.audit": "captured memory, filled with nan",
    "_transforms.tape": "values of a tape by hand",
    "_transforms.dual_numbers": "values and tangents of Duals",
    "_core.reverse": "layout of what is kept and summed",
    "_dispatch.fast.entries": "generated texts",
    "_dispatch.fast.products": "short ways",
    "_dispatch.fast.regions": "short ways",
    "_dispatch.fast.stacks": "short ways",
    "_core.lent_memory": "memory in other hands",
    "parallel.collectives": "which tapes watch what goes over ranks",
    "_transforms.call": "results of transforms that have ended",
    "_transforms.arguments": "arguments of transforms that have ended",
    "_transforms.rebind": "values that leave such a function",
    "_transforms.time_loop": "what the loop began with",
    "_transforms.batching.trace": "stacks, and what shows their layout",
    "_transforms.batching.rules": "layout of stacks",
    "_transforms.batching.captured_marks": "layout of captured arrays",
    "_transforms.side_effects": "does a value lie on this trace?",
    "_capture.arrays": "captured memory",
    "_capture.remembered": "captured memory",
    "_capture.restore": "captured memory",
    "_capture.routes": "captured memory",
    "_capture.threads": "captured memory",
    "_scipy.optimize.callback_search": "one element at its own level",
    "implicit.sequential": "the traces of a value",
    "ops.declare": "shape",
    "ops.variable_methods": "shape and dtype; views",
    "ops.linalg.degenerate_spectra": "levels below all transforms",
    "ops.indexing.gathering": "the short way to a diagonal",
    "ops.indexing.regions": "layout of buffers",
    "ops.linalg.factorizations": "the short way of solve, which asks for shapes",
    "ops.indexing.views": "a diagonal",
    "ops.indexing.hidden_regions": "what a handle stands for",
    "loops.operation": "the levels of a value",
    "replay.record.object_state": "views, and what shares memory",
    "ode._large": "results that no transform watches",
}
LAYOUT = {
    "shape",
    "ndim",
    "size",
    "dtype",
    "strides",
    "flags",
    "nbytes",
    "itemsize",
    "base",
    "__dlpack_device__",
    "_value",
}
PARTS = {"reshape", "transpose", "diagonal", "real"}  # of a layout are layouts
SHOWN = ("ops.indexing.views", "ops.indexing.writes", "ops.variable_methods")  # where `shown` gives one too
TAKERS = {
    "xp_of", "is_array", "is_scalar", "is_differentiable", "shares_memory", "type", "isinstance", "getattr",
    "hasattr", "len", "dtype", "numpy_number",
    "ndim", "shape", "region", "laid_out", "room_like", "_plain_out", "delitem", "like", "library",
    "library_function", "derivative_library", "may_share_memory", "layout_of_buffer",
}  # fmt: skip


def names_in(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "_value":
            yield node.attr
        elif isinstance(node, ast.Name) and node.id in ("values_of", "bottom"):
            yield node.id


def test_values_of_stands_where_values_are_needed():
    assert {name for name, tree in trees().items() if "values_of" in names_in(tree)} == set(ASKING)


def test_nobody_else_goes_past_the_traces():
    assert {name for name, tree in trees().items() if {"bottom", "_value"} & {*names_in(tree)}} == set(
        PASSING
    )


def called(node):
    """The name of the function that is called, or None."""
    f = getattr(node, "func", None)
    return f.id if isinstance(f, ast.Name) else f.attr if isinstance(f, ast.Attribute) else None


def of_layout(node, parents):
    """Is this expression, which shows a layout, used for that only?"""
    above = parents[node]
    # a part of it is one too
    if isinstance(above, (ast.IfExp, ast.BoolOp, ast.Subscript, ast.ListComp, ast.Starred)):
        return of_layout(above, parents)
    if isinstance(above, ast.Attribute):
        whole = parents[above] if isinstance(parents[above], ast.Call) else above
        return above.attr in LAYOUT or above.attr in PARTS and of_layout(whole, parents)
    if isinstance(above, (ast.Call, ast.keyword)):
        return called(above) in TAKERS
    if isinstance(above, ast.Compare):  # `is`
        return all(isinstance(op, (ast.Is, ast.IsNot)) for op in above.ops)
    return isinstance(above, (ast.Expr, ast.Assign))  # who is named is followed by its name


def misused(tree, givers):
    """The lines on which what `layout_of` gives is used for more than its layout."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if called(node) not in givers or not isinstance(node, ast.Call):
            continue
        while isinstance(parents[node], ast.IfExp):
            node = parents[node]
        above = parents[node]
        named = (
            above.targets[0].id
            if isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Name)
            else None
        )
        if named is None:
            if not of_layout(node, parents):
                yield node.lineno
            continue
        inside = above
        while not isinstance(inside, (ast.FunctionDef, ast.Lambda)):
            inside = parents[inside]
        for use in ast.walk(inside):
            if (
                isinstance(use, ast.Name)
                and use.id == named
                and isinstance(use.ctx, ast.Load)
                and use.lineno > node.lineno
            ):
                if not of_layout(use, parents):
                    yield use.lineno


def imports_layout_of(tree):
    return any(
        isinstance(i, ast.ImportFrom) and "layout_of" in [a.name for a in i.names] for i in ast.walk(tree)
    )


def test_a_layout_is_used_as_one():
    asking = {name: tree for name, tree in trees().items() if imports_layout_of(tree)}
    assert len(asking) > 10
    for name, tree in asking.items():
        misuses = list(misused(tree, ("layout_of", "layout_source") if name in SHOWN else ("layout_of",)))
        # what `shown` gives is one itself; so are the arguments whose shapes and dtypes a raw kernel compares.
        # Probes of subclasses tell the class of a result, and an address.
        known = {"ops.indexing.views": 1, "kernels.raw_code.kernel": 1, "_dispatch.subarrays": 2}
        known["_core.lent_memory"] = 1  # the address of the data
        known["loops.cuda_c.python_kernels"] = 3  # CuPy's compiler is told dtypes and numbers of axes
        known["loops.operation"] = 1  # the class of a number is its kind
        known["_dispatch.nditer"] = 1  # an array of the same layout, of which nothing is read
        assert len(misuses) == known.get(name, 0), (name, misuses)


@pytest.mark.parametrize(
    "text, lines",
    [
        ("def f(x):\n    v = layout_of(x)\n    return v.shape, xp_of(v)", []),
        ("def f(x):\n    v = layout_of(x)\n    return v > 0", [3]),
        ("def f(x):\n    return layout_of(x).sum()", [2]),
        ("def f(x, y):\n    v = y if y else layout_of(x)\n    return is_array(v), np.exp(v)", [3]),
    ],
)
def test_misuse_is_seen(text, lines):
    assert list(misused(ast.parse(text), ("layout_of",))) == lines
