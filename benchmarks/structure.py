"""Facts about the structure of the package, read from its sources alone.

    python benchmarks/structure.py [CHECKOUT ..]      # a table with one column for each checkout (this one by
    default)

`tests/project/test_structure.py` holds the bounds that have been reached."""

import ast
import collections
import functools
import re
import sys
import tokenize
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
NO_TOKENS = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER
}  # fmt: skip
DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Package:
    """The sources of one checkout."""

    def __init__(self, checkout: Path):
        self.checkout = checkout
        self.folder = checkout / "tapegrad"
        self.paths = {self.name_of(path): path for path in sorted(self.folder.rglob("*.py"))}
        self.texts = {name: path.read_text(encoding="utf-8") for name, path in self.paths.items()}
        self.trees = {name: ast.parse(text) for name, text in self.texts.items()}

    def name_of(self, path: Path) -> str:
        parts = path.relative_to(self.folder).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def imports(self, module: str) -> set[str]:
        """The modules of the package that a module imports, by its import statements."""
        found = set()
        here = module.split(".") if module else []
        package = here if self.paths[module].name == "__init__.py" else here[:-1]
        for node in ast.walk(self.trees[module]):
            if isinstance(node, ast.ImportFrom):
                if node.level:
                    base = package[: len(package) - node.level + 1]
                    base = base + (node.module.split(".") if node.module else [])
                elif (node.module or "").split(".")[0] == "tapegrad":
                    base = node.module.split(".")[1:]
                else:
                    continue
                names = [".".join([*base, a.name]) for a in node.names]
                found.update(n if n in self.paths else ".".join(base) for n in names)
            elif isinstance(node, ast.Import):
                found.update(
                    a.name.partition(".")[2] for a in node.names if a.name.split(".")[0] == "tapegrad"
                )
        return {name for name in found if name in self.paths and name != module}

    def graph(self) -> dict[str, set[str]]:
        """Root modules and first-level folders, each with those that it imports."""

        def node(module: str) -> str:
            return module.split(".")[0] or "__init__"

        graph: dict[str, set[str]] = {node(module): set() for module in self.paths}
        for module in self.paths:
            graph[node(module)] |= {node(other) for other in self.imports(module)} - {node(module)}
        return graph


def longest_path(graph: dict[str, set[str]]) -> int:
    """The number of nodes on the longest path; -1 if the graph has a circle."""
    open_: set[str] = set()

    @functools.cache
    def depth(node: str) -> int:
        if node in open_:
            raise RecursionError
        open_.add(node)
        below = max([depth(other) for other in graph[node]], default=0)
        open_.discard(node)
        return below + 1

    try:
        return max(depth(node) for node in graph)
    except RecursionError:
        return -1


def tokens(package: Package) -> int:
    count = 0
    for path in package.paths.values():
        with path.open("rb") as file:
            count += sum(token.type not in NO_TOKENS for token in tokenize.tokenize(file.readline))
    return count


def shared_names(package: Package) -> tuple[float, int]:
    """(Share of module-level definitions whose name is defined in another module too, class names used twice
    or more)."""
    modules = collections.defaultdict(set)
    classes: collections.Counter = collections.Counter()
    for module, tree in package.trees.items():
        for node in tree.body:
            if isinstance(node, DEFINITION):
                modules[node.name].add(module)
        classes.update(node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    definitions = sum(map(len, modules.values()))
    shared = sum(len(where) for where in modules.values() if len(where) > 1)
    return shared / definitions, sum(count > 1 for count in classes.values())


def is_number(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def thresholds(package: Package) -> tuple[int, int]:
    """(Numeric constants at module level, their names that stand in several modules)."""
    where = collections.defaultdict(set)
    for module, tree in package.trees.items():
        for node in tree.body:
            if isinstance(node, ast.Assign) and is_number(node.value):
                for target in node.targets:
                    if isinstance(target, ast.Name) and target.id.isupper():
                        where[target.id].add(module)
    return sum(map(len, where.values())), sum(len(modules) > 1 for modules in where.values())


PRIMITIVE = re.compile(
    r"\b(?:e|elementwise|shaping|reductions|products|piecewise|corners|matmul|linalg|factorizations|regions|indexing|sorting|gathering"
    r"|special|norms|s|red|ix|c)\.[a-z_0-9]+\.prim\b|\bmatmul\.prim\b"
)


def operations_named(package: Package) -> tuple[int, int]:
    """(Mentions of a primitive, and of `prim.name`, outside of the folders that declare operations)."""
    texts = [
        text
        for module, text in package.texts.items()
        if module.split(".")[0] not in ("ops", "stats", "_scipy")
    ]
    return sum(len(PRIMITIVE.findall(text)) for text in texts), sum(text.count("prim.name") for text in texts)


def flags_of_trace(package: Package) -> int:
    """Fields and optional methods of `Trace`, but its slots and its level."""
    for tree in package.trees.values():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name == "Trace":
                return (
                    sum(
                        getattr(member, "value", None) is not None
                        for member in node.body
                        if isinstance(member, (ast.Assign, ast.AnnAssign))
                    )
                    - 2
                )
    return 0


SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*\[\"'(])")


def sentences(text: str) -> list[int]:
    """Words of each sentence of a page in Markdown; code, tables and headings are left out."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    blocks, block = [], []
    for line in [*text.splitlines(), ""]:
        starts = re.match(r"\s*(?:[-*+]|\d+\.)\s+", line)
        if not line.strip() or line.lstrip().startswith(("#", "|", ":", ">", "<", "(")) or starts:
            blocks.append(" ".join(block))
            block = [line[starts.end() :]] if starts else []
        else:
            block.append(line.strip())
    text_of = [re.sub(r"`[^`]*`", "code", b) for b in blocks if b.strip()]
    counts = [len(re.findall(r"[\w'-]+", sentence)) for b in text_of for sentence in SENTENCE.split(b)]
    return [count for count in counts if count > 1]


def pages(package: Package) -> list[int]:
    folder = package.checkout / "docs"
    skipped = {"coverage.md", "changelog.md"}  # made by a script; a list
    found = [p for p in sorted(folder.rglob("*.md")) if p.name not in skipped and "reference" not in p.parts]
    return [count for page in found for count in sentences(page.read_text(encoding="utf-8"))]


def docstrings(package: Package) -> list[int]:
    counts = []
    for tree in package.trees.values():
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, *DEFINITION)) and (text := ast.get_docstring(node)):
                counts += sentences(re.sub(r"(?m)^\s*>>>.*$|^\s*\.\.\. .*$", "", text))
    return counts


def facts(checkout: Path) -> dict[str, float]:
    package = Package(checkout)
    graph = package.graph()
    share, classes = shared_names(package)
    constants, several = thresholds(package)
    primitives, names = operations_named(package)
    words, spoken = pages(package), docstrings(package)
    per_folder = collections.Counter(path.parent for path in package.paths.values())
    functions = [
        node for tree in package.trees.values() for node in ast.walk(tree) if isinstance(node, DEFINITION[:2])
    ]
    lines = [line for text in package.texts.values() for line in text.splitlines()]
    root = [
        module
        for module in package.paths
        if "." not in module and package.paths[module].name not in ("__init__.py", "__main__.py")
    ]
    return {
        "tokens, comments and docstrings not counted": tokens(package),
        "lines": len(lines),
        "modules": len(package.paths),
        "private modules at the root": sum(module.startswith("_") for module in root),
        "nodes of the import graph (root modules, folders)": len(graph),
        "edges": sum(map(len, graph.values())),
        "longest path (-1: a circle)": longest_path(graph),
        "imports of modules": sum(len(package.imports(module)) for module in package.paths),
        "modules in the largest folder": max(per_folder.values()),
        "longest module, lines": max(len(text.splitlines()) for text in package.texts.values()),
        "functions over 60 lines": sum((f.end_lineno or 0) - f.lineno + 1 > 60 for f in functions),
        "lines over 110 columns": sum(len(line) > 110 for line in lines),
        "definitions that share their name with another module, %": round(100 * share, 1),
        "class names used twice or more": classes,
        "numeric thresholds": constants,
        "names of thresholds with several meanings": several,
        "primitives named outside of ops": primitives,
        "`prim.name` asked outside of ops": names,
        "flags and optional methods of Trace": flags_of_trace(package),
        "words a sentence, docs": round(sum(words) / len(words), 1),
        "sentences over 35 words, docs, %": round(100 * sum(count > 35 for count in words) / len(words), 1),
        "words a sentence, docstrings": round(sum(spoken) / len(spoken), 1),
    }


def main() -> None:
    checkouts = [Path(name) for name in sys.argv[1:]] or [HERE]
    tables = [facts(checkout) for checkout in checkouts]
    print("| | " + " | ".join(str(checkout) for checkout in checkouts) + " |")
    print("|---|" + "---|" * len(checkouts))
    for name in tables[0]:
        print(f"| {name} | " + " | ".join(f"{table[name]:,}" for table in tables) + " |")


if __name__ == "__main__":
    main()
