"""Pictures as SVG, without a program to lay them out: flow charts of boxes in a row or a column (the
`mermaid` blocks of the pages), and
the two pictures of how-it-works.md. And the plots of the forecasting tutorial, from its own code:
python docs/drawing.py"""

import re
from html import escape
from pathlib import Path

PICTURES = Path(__file__).parent / "pictures"
STYLE = (
    "<style>text{font:14px sans-serif;fill:#222}.code{font:13px monospace}.small{font-size:12px;fill:#555}"
    ".head{font-weight:bold}.box{fill:#eef3fa;stroke:#5b7fb0}.arrow{stroke:#b0533c;stroke-width:2;fill:none}</style>"
)
HEAD = (
    '<marker id="{}" markerUnits="userSpaceOnUse" markerWidth="8" markerHeight="8" refX="7" refY="4" '
    'orient="auto">'
    '<path d="M0 0L8 4L0 8z" fill="{}"/></marker>'
)


def flowchart(text: str) -> str:
    """A chart of mermaid's: boxes `name["<b>title</b><br/>lines"]` and chains `a --> b --> c`.  The longest chain is the column
    (`flowchart BT`, from below) or the row (`LR`); what else hangs on a box of it stands beside that box."""
    boxes = {
        n: [re.sub("<.*?>", "", line) for line in label.split("<br/>")]
        for n, label in re.findall(r'(\w+)\["(.*?)"\]', text)
    }
    chains = [re.findall(r"\w+", line) for line in text.splitlines() if "-->" in line]
    main = max(chains, key=len)
    tip = f"tip-{main[0]}"  # the name of one of a page's charts is not that of another
    side = [(a, b) for chain in chains for a, b in zip(chain, chain[1:], strict=False) if b not in main]
    upright = "flowchart BT" in text
    width = {n: 24 + max(7.2 * len(line) for line in lines) for n, lines in boxes.items()}
    height = 14 + 18 * max(len(lines) for lines in boxes.values())
    widest = max(width[n] for n in main)
    place = {}
    for k, n in enumerate(main):
        before = sum(width[m] + 30 for m in main[:k])
        place[n] = (10.0, 10 + (len(main) - 1 - k) * (height + 24)) if upright else (10 + before, 10.0)
        width[n] = widest if upright else width[n]
    for a, b in side:
        place[b] = (
            (place[a][0] + width[a] + 40, place[a][1])
            if upright
            else (place[a][0], place[a][1] + height + 30)
        )
    right, bottom = (
        max(place[n][0] + width[n] for n in place) + 10,
        max(y for _, y in place.values()) + height + 10,
    )
    out = [f"<defs>{HEAD.format(tip, 'currentColor')}</defs>"]
    for n, (x, y) in place.items():
        out.append(
            f'<rect x="{x}" y="{y}" width="{width[n]:.0f}" height="{height}" rx="5" fill="none" '
            f'stroke="currentColor"/>'
        )
        for k, line in enumerate(boxes[n]):
            weight = ' font-weight="bold"' if k == 0 else ""
            out.append(
                f'<text x="{x + width[n] / 2:.0f}" y="{y + 20 + 18 * k}" '
                f'text-anchor="middle"{weight}>{escape(line)}</text>'
            )
    for a, b in [*zip(main, main[1:], strict=False), *side]:
        (x, y), (u, v) = place[a], place[b]
        if upright and b in main:
            ends = x + widest / 2, y, u + widest / 2, v + height
        else:
            ends = x + width[a], y + height / 2, u, v + height / 2
        line = 'x1="{:.0f}" y1="{:.0f}" x2="{:.0f}" y2="{:.0f}"'.format(*ends)
        out.append(f'<line {line} stroke="currentColor" marker-end="url(#{tip})"/>')
    shape = f'viewBox="0 0 {right:.0f} {bottom:.0f}" style="max-width:{right:.0f}px;width:100%" font-family="sans-serif" font-size="13"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {shape} fill="currentColor">{"".join(out)}</svg>'
    )


def picture(width: int, height: int, title: str, parts: list) -> str:
    frame = f'<rect width="{width}" height="{height}" rx="8" fill="#fff"/>'
    tips = f"<defs>{HEAD.format('tip', '#b0533c')}</defs>"
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
    return "\n".join([start, f"<title>{escape(title)}</title>", STYLE, tips, frame, *parts, "</svg>", ""])


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="box" x="{x}" y="{y}" width="{width}" height="{height}" rx="5"/>'


def arrow(*points: tuple) -> str:
    way = "L".join(f"{x} {y}" for x, y in points)
    return f'<path class="arrow" d="M{way}" marker-end="url(#tip)"/>'


def tape() -> str:
    """f(x) = sum(sin(x) x): what is recorded, and what the sweep adds."""
    rows = [
        ("a = np.sin(x)", "sin     slot 0 → 1      keeps x", "ḡ₀ += ḡ₁ cos(x)"),
        ("b = a * x", "mul     slots 1, 0 → 2  keeps a, x", "ḡ₁ += ḡ₂ x,  ḡ₀ += ḡ₂ a"),
        ("y = np.sum(b)", "sum     slot 2 → 3      keeps the shape", "ḡ₂ += ḡ₃, spread"),
    ]
    parts = [
        text(40, 32, "your line", "head"),
        text(210, 32, "its record on the tape", "head"),
        text(590, 32, "the sweep", "head"),
    ]
    for k, (line, record, adds) in enumerate(rows):
        y = 52 + 52 * k
        parts += [text(40, y + 24, line, "code"), box(205, y, 350, 38), box(585, y, 215, 38)]
        parts += [
            f'<text x="215" y="{y + 24}" class="code" xml:space="preserve">{record}</text>',
            text(595, y + 24, adds, "code"),
        ]
    parts += [arrow((22, 56), (22, 200)), arrow((820, 200), (820, 56))]
    parts += [
        text(40, 228, "recorded downwards, x being slot 0", "small"),
        text(540, 228, "swept upwards from ḡ₃ = 1 to the gradient ḡ₀", "small"),
    ]
    return picture(
        840, 245, "A program of three operations, its three records, and what each adds in the sweep", parts
    )


def levels() -> str:
    """jvp(grad(f), ..): one operation goes down three levels."""
    rows = [
        ("level 2", "reverse mode", "grad, the inner one", "runs sin on the value; one record"),
        ("level 1", "forward mode", "jvp, the outer one", "value sin(x), tangent cos(x) t"),
        ("level 0", "NumPy, CuPy", "plain arrays", "np.sin, np.cos, np.multiply"),
    ]
    parts = [text(150, 30, "np.sin(x) in f, under jvp(grad(f), (x,), (t,))", "code")]
    for k, (level, what, who, does) in enumerate(rows):
        y = 62 + 84 * k
        parts += [text(20, y + 28, level, "head"), box(100, y, 620, 48), text(115, y + 20, what, "head")]
        parts += [text(115, y + 39, who, "small"), text(300, y + 29, does)]
        parts.append(arrow((240, y - 26 if k else y - 24), (240, y - 3)))
    parts.append(
        text(
            255,
            132,
            "its value is a Variable of level 1; the rules of its sweep will meet such values too",
            "small",
        )
    )
    parts.append(text(255, 216, "value and tangent are plain arrays", "small"))
    parts.append(
        text(
            100,
            308,
            "A third transform would stand on top: nothing in the rules knows how many there are.",
            "small",
        )
    )
    return picture(760, 325, "One operation under two transforms, one level after the other", parts)


def plots_of_forecasting() -> None:
    """Save the plots of the first fit of the tutorial."""
    page = (PICTURES.parent / "tutorials" / "forecasting.md").read_text(encoding="utf-8")
    names: dict = {}
    for code in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)[:2]:
        exec(code, names)
    plots = {"forecast": names["fit"].plot(24), "components": names["fit"].plot_components()}
    for name, figure in plots.items():
        figure.savefig(PICTURES / f"forecasting-{name}.png", dpi=70)


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    for draw in (tape, levels):
        (PICTURES / f"{draw.__name__}.svg").write_text(draw(), encoding="utf-8")
    plots_of_forecasting()
