"""Ports the text of a Rust file by the rules of `rules.txt`, and removes functions from it."""

import re


class Rules:
    """The rules of a file: see the comment at its top."""

    def __init__(self, path):
        self.paths, self.texts = {}, []
        for number, line in enumerate(path.read_text().splitlines(), 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            kind, _, rule = line.partition(" ")
            old, arrow, new = rule.partition(" -> ")
            if kind not in ("path", "text") or not arrow:
                raise SystemExit(f"{path}:{number}: expected `path A -> B` or `text A -> B`")
            if kind == "path":
                self.paths[tuple(old.strip().split("::"))] = new.strip()
            else:
                self.texts.append((re.compile(old.strip()), new.strip()))

    def port(self, text):
        """Returns `text` with all rules applied."""
        if not self.paths and not self.texts:
            return text
        text = USE.sub(divided, text)
        text = PATH.sub(lambda found: self.path(found.group(0)), text)
        for old, new in self.texts:
            text = old.sub(new, text)
        return text

    def path(self, path):
        """Returns the port of a path: the rule with the longest beginning applies."""
        names = re.split(r"\s*::\s*", path)
        for length in range(len(names), 0, -1):
            new = self.paths.get(tuple(names[:length]))
            if new is not None:
                return "::".join([new, *names[length:]])
        return path


# A path that begins with `tokio`, and the import of one, with the attributes before it.
PATH = re.compile(r"(?<![\w:.])tokio(?:\s*::\s*[A-Za-z_]\w*)+")
USE = re.compile(r"((?:^[ \t]*#\[[^\n]*\]\n)*)([ \t]*(?:pub )?use )(tokio::[^;]*);", re.M)


def divided(found):
    """Returns an import for each name of a nested one: their ports may be in different modules."""
    attributes, use, tree = found.groups()
    tree = re.sub(r"\s+", " ", re.sub(r"//[^\n]*", "", tree))
    attributes = re.sub(r"\n\s*", " ", attributes)
    imports = " ".join(f"{attributes}{use.strip()} {path};" for path in leaves(tree))
    # Each line of the original keeps its number.
    return imports + "\n" * found.group(0).count("\n")


def leaves(tree):
    """Yields the paths of an import such as `a::{b, c::{self, D}}`."""
    prefix, brace, rest = tree.partition("{")
    if not brace:
        yield tree
        return
    depth, begin = 0, 0
    rest = rest[: rest.rindex("}")]
    for at, char in enumerate(rest + ","):
        depth += (char == "{") - (char == "}")
        if char != "," or depth:
            continue
        part = rest[begin:at].strip()
        begin = at + 1
        if re.match(r"self\b", part):
            yield prefix.removesuffix("::") + part.removeprefix("self")
        elif part:
            yield from (prefix + leaf for leaf in leaves(part))


def code_only(text):
    """Returns `text` with comments and literals blanked, at the same positions."""
    blank = lambda found: re.sub(r"[^\n]", " ", found.group(0))
    return LITERAL.sub(blank, text)


LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\.[^\']*|[^\'\\])\'', re.S
)


def items(text):
    """Yields the name, the begin (with attributes) and the end of each function and module."""
    code = code_only(text)
    for found in re.finditer(r"\b(?:fn|mod)\s+(\w+)", code):
        depth, end = 0, None
        for at in range(found.end(), len(code)):
            depth += code[at] in "{([" 
            depth -= code[at] in "})]"
            if depth == 0 and code[at] in "};":
                end = at + 1
                break
        if end is None:
            continue
        begin = text.rfind("\n", 0, found.start()) + 1
        # The lines above that are attributes or comments, or the rest of an attribute.
        while begin:
            above = text.rfind("\n", 0, begin - 1) + 1
            line = text[above:begin].strip()
            if line.startswith(("#[", "//")):
                begin = above
            elif line in (")]", "))]"):
                begin = text.rfind("\n", 0, text.rfind("#[", 0, above)) + 1
            else:
                break
        yield found.group(1), begin, end


def without(text, name):
    """Returns `text` without the functions and modules of that name, or `None` without any."""
    spans = [(begin, end) for found, begin, end in items(text) if found == name]
    for begin, end in reversed(spans):
        # Keep the line breaks, so that the lines of messages stay those of the original.
        text = text[:begin] + re.sub(r"[^\n]", "", text[begin:end]) + text[end:]
    return text if spans else None


def item_at(text, line):
    """Returns the name of the innermost function or module around that line, or `None`."""
    around = None
    for name, begin, end in items(text):
        if text.count("\n", 0, begin) < line <= text.count("\n", 0, end) + 1:
            around = name
    return around
