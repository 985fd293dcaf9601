"""Sums of products of matrices, as the cotangent of a matrix that a loop uses: one product, of the left
factors side by side and the right ones below each other."""

import collections
import itertools
import math

import numpy as np

from .._core.arrays import F8
from .._core.primitive import Primitive
from ..ops.declare import NUMPY
from .buffer_pool import is_packed
from .costs import SUMMED_ELEMENTS, SUMMED_PRODUCTS
from .shared_factors import NO_SETTINGS


def sum_of_products(*factors):
    """The left factors come first."""
    n = len(factors) // 2
    return np.concatenate(factors[:n], 1) @ np.concatenate(factors[n:], 0)


SUM_OF_PRODUCTS = Primitive("sum_of_products", sum_of_products)


def is_addition(prim) -> bool:
    """Is it a sum, a difference or a change of sign, of all elements?"""
    return prim is not None and prim.infix in ("+", "-")


def signs(prim: Primitive, operands: tuple) -> list:
    """With which signs a sum adds its operands."""
    return [1] * (len(operands) - 1) + [1 if prim.infix == "+" else -1]


def with_summed_products(program):
    """Return the program in which products that are only added up are one product, where that has fewer
    elements to read than the sums; the same program if there is none."""
    kinds = dict(zip(map(id, program.what), program.what, strict=True)).values()
    if not any([prim.reduces == "products" for prim, *_ in kinds]):
        return program
    found = ProductSums(program)
    return found.rewritten() if found.sums else program


class ProductSums:
    """The sums of a program whose terms are products: `sums`, number of the value -> its terms, as
    (sign, number); `made`: the sums and products of matrices."""

    def __init__(self, program):
        self.program, self.shown = program, program.shown
        self.within = set()  # sums and products that are terms of another sum
        self.sums = {}
        kinds = dict(zip(map(id, program.what), program.what, strict=True))
        fit = {n for n, (prim, *_) in kinds.items() if is_addition(prim) or prim.reduces == "products"}
        each = zip(program.numbers, program.what, program.operands, strict=True)
        self.made = {k: (w, ks) for k, w, ks in each if id(w) in fit and self.is_matrix(k)}
        if sum([self.is_product(k) for k in self.made]) < SUMMED_PRODUCTS:
            return
        self.reads = collections.Counter(itertools.chain.from_iterable(program.operands))
        self.kept = {*program.ends, *program.guards}
        nodes = [k for k in self.made if self.is_sum(k)]
        for k in nodes:
            self.within.update([a for a in self.made[k][1] if self.is_term(a)])
        self.left_out = set()
        for k in nodes:
            if k not in self.within:
                terms, inner = self.terms(k)
                if self.pays(k, terms):
                    self.sums[k] = terms
                    self.left_out |= inner

    def is_matrix(self, k: int) -> bool:
        numpys, shape, _, dtype, _ = self.shown[k]
        return bool(numpys) and len(shape) == 2 and dtype == F8 and math.prod(shape) >= SUMMED_ELEMENTS

    def is_sum(self, k: int) -> bool:
        (prim, *_), operands = self.made[k]
        fits = is_addition(prim) and is_packed(self.shown[k])
        return fits and all([self.shown[a][1] == self.shown[k][1] for a in operands])

    def is_product(self, k: int) -> bool:
        (prim, *_), operands = self.made[k]
        return prim.reduces == "products" and all(
            [len(self.shown[a][1]) == 2 and self.shown[a][3] == F8 for a in operands]
        )

    def is_term(self, k: int) -> bool:
        """Return whether the sum that reads the value is its only reader, and can add its terms."""
        alone = k in self.made and self.reads[k] == 1 and k not in self.kept
        return alone and (self.is_sum(k) or self.is_product(k))

    def terms(self, k: int) -> tuple:
        """(the terms of a sum, the sums and products in it)"""
        terms, inner, waiting = [], set(), [(1, k)]
        while waiting:
            sign, j = waiting.pop()
            (prim, *_), operands = self.made.get(j, ((None,), ()))
            if j != k:
                inner.add(j)
            if (j == k or j in self.within) and is_addition(prim):
                waiting += [(sign * s, a) for s, a in zip(signs(prim, operands), operands, strict=True)][::-1]
            else:
                terms.append((sign, j))
        return terms, inner & self.within

    def products(self, terms: list, sign: int) -> list:
        return [j for s, j in terms if s == sign and j in self.within]

    def pays(self, k: int, terms: list) -> bool:
        shape, products = self.shown[k][1], self.products(terms, 1) + self.products(terms, -1)
        inner = sum([self.shown[self.made[j][1][0]][1][1] for j in products])
        return len(products) >= SUMMED_PRODUCTS and inner * sum(shape) < len(products) * math.prod(shape)

    def rewritten(self):
        made = self.program.with_copied_instructions()
        before = [*zip(made.numbers, made.what, made.operands, strict=True)]
        self.code = []
        for k, what, operands in before:
            if k in self.sums:
                self.add(made, k)
            elif k not in self.left_out:
                self.code.append((k, what, operands))
        made.numbers, made.what, made.operands = [[*column] for column in zip(*self.code, strict=True)]
        return made

    def add(self, program, k: int) -> None:
        """The instructions that make the sum k."""
        watched = self.made[k][0][2]

        def new(prim: Primitive, operands: tuple, flags=watched) -> int:
            n, program.size = program.size, program.size + 1
            program.added[n] = self.shown[k]
            self.code.append((n, (prim, NO_SETTINGS, flags), operands))
            return n

        terms = []
        for sign in (1, -1):
            products = self.products(self.sums[k], sign)
            if products:
                left, right = zip(*[self.made[j][1] for j in products], strict=True)
                terms.append((sign, new(SUM_OF_PRODUCTS, left + right, self.made[products[0]][0][2])))
            terms += [(s, j) for s, j in self.sums[k] if s == sign and j not in self.within]
        (sign, total), *rest = terms
        if sign < 0:
            total = new(NUMPY[np.negative].prim, (total,))
        for sign, j in rest:
            total = new(NUMPY[np.add if sign > 0 else np.subtract].prim, (total, j))
        del program.added[total]
        self.code.append((k, *self.code.pop()[1:]))
