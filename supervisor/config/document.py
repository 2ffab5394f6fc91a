"""YAML with line numbers and environment variables.

The file is composed to nodes and these are built into plain values here, so that every value keeps its line and a
repeated key is an error. Scalars are read as YAML 1.2 reads them (true and false, no yes/no/on/off, no octal, no 1:30
as a number): what looks like a text is one.

`${NAME}` in a value is replaced by the environment variable, `$${` is a literal `${`. An unquoted value is read after
the replacement (`workers: ${N}` is a number), a quoted one stays a text. Messages show values as written, since
variables hold secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

Path = tuple[str | int, ...]

MAX_NODES = 20_000
"""Aliases can multiply: ten lines make 10^9 nodes."""

_VARIABLE = re.compile(r"\$(\$\{|\{([^}]*)\})")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: Mapping[str, Any] = (
    dict.fromkeys(("", "~", "null", "Null", "NULL"))
    | dict.fromkeys(("true", "True", "TRUE"), True)
    | dict.fromkeys(("false", "False", "FALSE"), False)
)
_PLAIN = "plain"
_STR = "tag:yaml.org,2002:str"
_CONVERTED = {f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "bool", "null")}
_COLLECTIONS = {"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}


@dataclass(frozen=True)
class Problem:
    """One error: where, and the text after the place."""

    line: int
    path: Path
    text: str


@dataclass
class Document:
    """A file's values, the line of each, and each scalar's text, as written and with its variables replaced."""

    data: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    written: dict[Path, str] = field(default_factory=dict)
    texts: dict[Path, str] = field(default_factory=dict)
    from_environment: set[Path] = field(default_factory=set)
    broken: set[Path] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)

    def line(self, path: Path) -> int:
        """The line of the key, or of the nearest one above it that is in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def complain(self, path: Path, text: str) -> None:
        """Note an error at a key."""
        self.problems.append(Problem(self.line(path), path, text))


class _Loader(yaml.SafeLoader):
    """Composes nodes only; says which scalars are unquoted and untagged, and leaves their reading to us."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - the base class's own name and type

    def resolve(self, kind: type[yaml.Node], value: str, implicit: Any) -> str:
        if kind is yaml.ScalarNode and implicit[0]:
            return _PLAIN
        return str(super().resolve(kind, value, implicit))  # type: ignore[no-untyped-call]


def parse(text: str, environment: Mapping[str, str]) -> Document:
    """Read a file's text. All errors, that of the syntax too, are in the document's `problems`."""
    document = Document()
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        document.problems.append(_syntax_problem(error, text))
        return document
    except RecursionError:
        document.complain((), "found values nested too deeply to be read, expected a few levels")
        return document
    if node is not None:
        _Builder(document, environment).build_document(node)
    return document


def _syntax_problem(error: yaml.YAMLError, text: str) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        return Problem(1, (), f"found what is not YAML ({str(error).splitlines()[0]}), expected a YAML mapping")
    lines = text.splitlines()
    source = lines[mark.line] if mark.line < len(lines) else ""
    hint = ""
    if "\t" in source[: mark.column + 1]:
        hint = "; indent with spaces, not with tabs"
    elif re.search(r":\s*\[[0-9A-Fa-f:]*\]", source):
        hint = '; write an IPv6 address in quotes: "[::1]:8000"'
    elif "${" in source:
        hint = '; write ${...} inside { } or [ ] in quotes: "${NAME}"'
    problem = getattr(error, "problem", None) or "what is not YAML"
    return Problem(mark.line + 1, (), f"found what is not YAML (column {mark.column + 1}: {problem}){hint}")


class _Builder:
    def __init__(self, document: Document, environment: Mapping[str, str]) -> None:
        self.document = document
        self.environment = environment
        self.nodes = 0
        self.above: set[int] = set()

    def build_document(self, node: yaml.Node) -> None:
        self.document.lines[()] = node.start_mark.line + 1
        try:
            self.document.data = self.build(node, ())
        except OverflowError:
            self.document.complain((), f"found more than {MAX_NODES} values, expected fewer; do not nest aliases")

    def build(self, node: yaml.Node, path: Path) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise OverflowError
        if id(node) in self.above:
            self.fail(path, "found an alias for a value that contains it, expected none")
            return None
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, path)
        if node.tag not in _COLLECTIONS:
            self.fail(path, f"found the tag {node.tag}, expected none")
            return None
        self.above.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.item(child, (*path, number)) for number, child in enumerate(node.value)]
            return self.mapping(node, path)
        finally:
            self.above.discard(id(node))

    def item(self, node: yaml.Node, path: Path) -> Any:
        self.document.lines.setdefault(path, node.start_mark.line + 1)
        return self.build(node, path)

    def mapping(self, node: yaml.Node, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merged: list[yaml.Node] = []
        first: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.document.problems.append(Problem(line, path, "found a key that is a list or a mapping"))
                continue
            key = key_node.value
            if key == "<<" and key_node.tag == _PLAIN:
                merged += value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
                continue
            here = (*path, key)
            if key in first:
                text = f"found the key a second time, expected it once; the first is in line {first[key]}"
                self.document.problems.append(Problem(line, here, text))
                continue
            first[key] = self.document.lines[here] = line
            result[key] = self.build(value_node, here)
        for source in merged:
            self.merge(source, path, result)
        return result

    def merge(self, node: yaml.Node, path: Path, result: dict[str, Any]) -> None:
        """`<<: *anchor`: keys that the mapping does not have itself; the first of several mappings wins."""
        if not isinstance(node, yaml.MappingNode):
            self.document.complain(path, "found << with something else, expected << with a mapping or a list of them")
            return
        if id(node) in self.above:
            self.fail(path, "found an alias for a value that contains it, expected none")
            return
        self.above.add(id(node))
        for key_node, value_node in node.value:
            here = (*path, str(key_node.value))
            if isinstance(key_node, yaml.ScalarNode) and key_node.value not in result:
                self.document.lines[here] = key_node.start_mark.line + 1
                result[key_node.value] = self.build(value_node, here)
        self.above.discard(id(node))

    def scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        self.document.written[path] = node.value
        text = self.document.texts[path] = self.replace(node.value, path)
        if node.tag == _PLAIN or node.tag in _CONVERTED:
            return _read(text)
        if node.tag != _STR:
            self.fail(path, f"found the tag {node.tag}, expected none")
        return text

    def replace(self, text: str, path: Path) -> str:
        def variable(match: re.Match[str]) -> str:
            name = match.group(2)
            if name is None:
                return "${"
            self.document.from_environment.add(path)
            if not _NAME.fullmatch(name):
                self.fail(path, f"found ${{{name}}}, expected ${{NAME}}; $${{ stands for ${{ itself")
            elif name not in self.environment:
                self.fail(path, f"found ${{{name}}}, expected an environment variable {name}; set it, it is not there")
            else:
                return self.environment[name]
            return ""

        return _VARIABLE.sub(variable, text) if "${" in text else text

    def fail(self, path: Path, text: str) -> None:
        self.document.complain(path, text)
        self.document.broken.add(path)


def _read(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text) and len(text) < 400:
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
