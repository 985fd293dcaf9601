"""What it costs to look: a gradient within `detect_anomalies`, `profile`, `graph` and `audit` of the same
function.

    python benchmarks/finding_errors.py [--save] [--quick] [--only costs]

A chain of 2,000 operations on vectors of n numbers."""

import _harness as bench
import numpy as np

import tapegrad as tg

LINKS = 1000


def chain(x):
    for _ in range(LINKS):
        x = np.tanh(x * 1.0001)
    return x.sum()


def costs(report):
    report.table(
        f"a chain of {2 * LINKS} operations: milliseconds, and how many gradients that is",
        [
            "n",
            "gradient",
            "detect_anomalies",
            "profile",
            "graph",
            "audit",
            "anomalies / gradient",
            "profile /",
            "graph /",
            "audit /",
        ],
    )
    for n in (3, 1000) if report.quick else (3, 1000, 10_000):
        x, gradient = np.linspace(0.1, 1.0, n), tg.grad(chain)

        def within(x=x, gradient=gradient):
            with tg.detect_anomalies():
                return gradient(x)

        jobs = {"gradient": lambda x=x, gradient=gradient: gradient(x), "anomalies": within}
        t = bench.measure(jobs, rtol=1e-12)
        whole = {
            "gradient": jobs["gradient"],
            "profile": lambda x=x: tg.profile(chain, x).operations,
            "graph": lambda x=x: len(tg.graph(chain, x).nodes),
            "audit": lambda x=x: len(tg.audit(chain, x).checks),
        }
        u = bench.measure(whole, compare=False, rounds=(3, 5), most=1)
        tools = ("profile", "graph", "audit")
        report.row(
            n, *[bench.times(s, 1e3) for s in t.values()], *[bench.times(u[k], 1e3) for k in tools],
            bench.ratio(t["anomalies"], t["gradient"]), *[bench.ratio(u[k], u["gradient"]) for k in tools],
        )  # fmt: skip
    report.say()


def main():
    bench.start(__doc__).run(costs)


if __name__ == "__main__":
    main()
