"""A built site: each link, picture and script of each page leads to a file, each anchor to an element with
that name, no element has
the name of another, and each that is opened is closed:  python docs/check_site.py SITE"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

EMPTY = frozenset("area base br col embed hr img input link meta source track wbr".split())


class Page(HTMLParser):
    def __init__(self, path: Path):
        super().__init__()
        self.path, self.names, self.links, self.open, self.faults = path, set(), [], [], []
        self.feed(path.read_text(encoding="utf-8"))
        self.faults += [f"<{tag}> is not closed" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if "id" in given:
            if given["id"] in self.names:
                self.faults.append(f"two elements have the name {given['id']}")
            self.names.add(given["id"])
        self.links += [given[name] for name in ("href", "src", "data") if given.get(name) and tag != "base"]
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in EMPTY:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> at {self.getpos()} closes nothing")


def faults(site: Path) -> list:
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    found = [f"{path}: {fault}" for path, page in pages.items() for fault in page.faults]
    for path, page in pages.items():
        for link in page.links:
            to = urlsplit(link)
            if to.scheme or to.netloc:
                continue
            target = (path.parent / unquote(to.path)).resolve() if to.path else path
            if not target.is_file():
                found.append(f"{path}: {link} leads to no file")
            elif to.fragment and target in pages and unquote(to.fragment) not in pages[target].names:
                found.append(f"{path}: {link} leads to no element")
    print(f"{len(pages)} pages, {sum(len(page.links) for page in pages.values())} links, {len(found)} faults")
    return found


if __name__ == "__main__":
    wrong = faults(Path(sys.argv[1]).resolve())
    print(*wrong, sep="\n", end="\n" if wrong else "")
    sys.exit(1 if wrong else 0)
