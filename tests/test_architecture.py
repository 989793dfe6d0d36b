"""The house rules that a machine can check: import directions, what is imported when, docs that keep up."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nlpctl.cli.app import COMMANDS
from nlpctl.config.tasks import KNOWN_TASKS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "nlpctl"

# The rooms in order: a module imports from its own room or from a later one, and modules never import in a circle.
ORDER = (
    "api",
    "cli",
    "ui",
    "datatools",
    "experiments",
    "modeltools",
    "compress",
    "serve",
    "inference",
    "convert",
    "export",
    "training",
    "runs",
    "launch",
    "engines",
    "tasks",
    "graphs",
    "models",
    "data",
    "runtime",
    "config",
    "report",
    "formats",
    "upstream",
)
# The same within nlpctl/data; "" stands for the modules beside these folders.
DATA_ORDER = ("inspect", "", "batches", "rows", "text", "readers")
LIGHT = ("config", "runtime", "launch", "cli", "compress.strategies", "compress.plan", "compress.costs",
         "compress.schedule", "compress.selection", "compress.scores", "compress.timing",
         "export.strategies")  # fmt: skip
HEAVY = {"paddle", "paddlenlp", "paddleslim", "numpy", "onnxruntime", "tokenizers", "datasets", "visualdl"}
HEAVY |= {"fastapi", "uvicorn"}
PADDLE = {"paddle", "paddlenlp", "paddleslim"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@functools.cache
def imports(path: Path, *, module_level_only: bool = False) -> set[str]:
    """Dotted names that `path` imports; module level leaves out functions and `if TYPE_CHECKING`."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            # `from nlpctl.data import rows` imports nlpctl.data and nlpctl.data.readers.readers
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        inside = module_level_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        typing_only = module_level_only and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        if not inside and not typing_only:
            for child in ast.iter_child_nodes(node):
                visit(child)

    visit(ast.parse(path.read_text(encoding="utf-8")))
    return found


def layer_of(module: str) -> tuple[int, int] | None:
    """The place of `nlpctl.FOLDER...` in the order; None for the modules beside them."""
    folder, *inner = module.removeprefix("nlpctl.").split(".")
    if folder not in ORDER:
        return None
    within = inner[0] if folder == "data" and inner and inner[0] in DATA_ORDER else ""
    return ORDER.index(folder), DATA_ORDER.index(within)


def wrong_direction(importer: str, imported: str) -> bool:
    here, there = layer_of(importer), layer_of(imported)
    return here is not None and there is not None and there < here


def test_every_folder_has_its_place() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders == set(ORDER) - {"api"}


def test_imports_point_one_way() -> None:
    wrong = sorted(
        f"{importer} imports {imported}"
        for importer, path in MODULES.items()
        for imported in imports(path)
        if imported in MODULES and wrong_direction(importer, imported)
    )
    assert not wrong, "\n".join(wrong)


def test_the_modules_beside_the_rooms_import_none() -> None:
    modules = MODULES.keys()
    root = {name for name in modules if layer_of(name) is None} - {"nlpctl.__main__"}
    offered = {"nlpctl.api"}  # nlpctl/__init__.py gives its names, and imports it when one of them is asked for
    assert {"nlpctl.errors", "nlpctl.files"} <= root
    wrong = {f"{name} imports {other}" for name in root for other in imports(MODULES[name]) & modules - root - offered}
    assert not wrong, sorted(wrong)


def test_the_direction_check_sees_a_wrong_import() -> None:
    assert wrong_direction("nlpctl.config.load", "nlpctl.data.readers.readers")
    assert wrong_direction("nlpctl.data.readers.readers", "nlpctl.tasks.base")
    assert not wrong_direction("nlpctl.cli.train", "nlpctl.config.load")


def imported_modules(module: str) -> set[str]:
    """The modules that `module` imports anywhere, also in functions and for type checkers."""
    return {name for name in imports(MODULES[module]) if name in MODULES} - {module}


def circles(neighbours: Callable[[str], set[str]], modules: Iterator[str]) -> list[set[str]]:
    """Groups of modules each of which reaches every other one of its group."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            new = neighbours(waiting.pop()) - seen
            seen |= new
            waiting += new
        return seen

    reach = {module: reached(module) for module in modules}
    groups = {frozenset(other for other in reach[module] if module in reach[other]) for module in reach}
    return [set(group) for group in groups if group]


def test_no_circles() -> None:
    graph = {module: imported_modules(module) - {"nlpctl"} for module in MODULES}
    found = circles(graph.__getitem__, iter(graph))
    assert not found, "\n".join(f"a circle of imports: {', '.join(sorted(group))}" for group in found)


def test_the_circle_check_sees_circles() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"d"}, "e": {"a"}}
    assert sorted(map(sorted, circles(graph.__getitem__, iter(graph)))) == [["b", "c"], ["d"]]


def chains_to(packages: set[str], start: str) -> Iterator[str]:
    """How importing `start` imports one of `packages`, through module level alone."""
    seen, waiting = {start: start}, [start]
    while waiting:
        module = waiting.pop()
        for imported in imports(MODULES[module], module_level_only=True):
            chain = f"{seen[module]} > {imported}"
            if imported.split(".")[0] in packages:
                yield chain
            elif imported in MODULES and imported not in seen:
                seen[imported] = chain
                waiting.append(imported)


@pytest.mark.parametrize("folder", LIGHT)
def test_light_folders_import_nothing_heavy(folder: str) -> None:
    """Help, validation and the process set-up come before Paddle, so they must not pull it in, even indirectly."""
    modules = [name for name in MODULES if name.startswith(f"nlpctl.{folder}")]
    problems = {chain for module in modules for chain in chains_to(HEAVY, module)}
    assert not problems, "\n".join(sorted(problems))


def commands() -> set[str]:
    """The modules that do what a command does, by their docstrings: "`nlpctl train`: ..."."""
    found = {"nlpctl.api"}
    for name, path in MODULES.items():
        if re.match("`nlpctl [a-z]", ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""):
            found.add(name)
    return found


def test_commands_import_paddle_late() -> None:
    """A command tells what files show before Paddle is imported, and sets the process up before that, too."""
    modules = sorted(commands())
    assert len(modules) > 40
    problems = {chain for module in modules for chain in chains_to(PADDLE, module)}
    assert not problems, "\n".join(sorted(problems))


def promises() -> dict[str, set[str]]:
    """Module to the packages that its docstring, or that of its folder, promises not to import."""
    found = {}
    for name, path in MODULES.items():
        for file in (path, path.with_name("__init__.py")):
            words = " ".join((ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").split())
            if match := re.search(r"[Ii]mports? (no|neither) Paddle( nor NumPy)?", words):
                found[name] = found.get(name, set()) | PADDLE | ({"numpy"} if match[2] else set())
    return found


def test_what_promises_to_import_no_paddle_imports_none() -> None:
    promised = promises()
    assert {"nlpctl.models.source", "nlpctl.models.export_folder", "nlpctl.runtime.doctor"} <= promised.keys()
    problems = {chain for module, packages in promised.items() for chain in chains_to(packages, module)}
    assert not problems, "\n".join(sorted(problems))


def test_the_heavy_check_sees_heavy_imports(tmp_path: Path) -> None:
    file = tmp_path / "some.py"
    file.write_text("import os\nif os.name:\n    import paddle.nn as nn\n\ndef late():\n    import numpy\n")
    assert imports(file, module_level_only=True) == {"os", "paddle.nn"}
    assert imports(file) == {"os", "paddle.nn", "numpy"}


# Below the commands nobody reads a recipe or sets up a process, but for processes as they begin.
BELOW = ("training", *ORDER[ORDER.index("launch") :])
BEGINNINGS = {
    "nlpctl.training.refusals",
    "nlpctl.training.continued",
    "nlpctl.training.several_machines",
    "nlpctl.engines.speeds",
}
OF_TOPS = {"nlpctl.config.load.load_recipe", "nlpctl.runtime.process.set_up_process"}


def test_recipes_and_set_ups_are_handed_down() -> None:
    """Below the commands nobody reads a recipe again or sets up the process; both come as values."""
    below = tuple(f"nlpctl.{name}." for name in BELOW)
    asked = {
        module: found
        for module, path in MODULES.items()
        if module.startswith(below) and not module.startswith("nlpctl.config")
        and module not in BEGINNINGS
        and (found := {name for name in imports(path) if name in OF_TOPS or name.startswith("nlpctl.config.recipe_of")})
    }
    assert not asked


def test_every_workaround_is_documented() -> None:
    """docs/upstream.md is the list of what can go when upstream mends it."""
    text = (ROOT / "docs" / "upstream.md").read_text(encoding="utf-8")
    functions = [
        f"{path.stem}.{node.name}"
        for path in sorted((PACKAGE / "upstream").glob("*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]
    assert functions
    missing = [name for name in functions if name.split(".")[1] not in text]
    assert not missing, f"not in docs/upstream.md: {missing}"


def test_every_row_says_on_which_paddle_it_holds() -> None:
    text = (ROOT / "docs" / "upstream.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if re.match(r"\| .*`test_\w+\.py`", line)]
    assert len(rows) > 30
    assert not [row for row in rows if not re.search(r"\| (2\.6|3\.1|2\.6, 3\.1) \|$", row)]


UPSTREAM = {"paddle", "paddlenlp", "paddleslim", "visualdl"}


def patches(tree: ast.AST) -> Iterator[int]:
    """The lines that change a module or a class of Paddle: an assignment, setattr, __dict__, a mock.

    What is Paddle's is known by its name: imported, assigned from such a name, or taken from a collection of such. What
    a call returns, such as a layer, is not.
    """
    nodes = list(ast.walk(tree))
    paddles = {
        alias.asname or alias.name.split(".")[0]
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if (node.module or "" if isinstance(node, ast.ImportFrom) else alias.name).split(".")[0] in UPSTREAM
    }

    def is_paddles(node: ast.AST | None) -> bool:
        match node:
            case ast.Name(id=name):
                return name in paddles
            case ast.Attribute(value=value) | ast.Subscript(value=value) | ast.Starred(value=value):
                return is_paddles(value)
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts) | ast.Dict(values=parts):
                return any(is_paddles(part) for part in parts)
            case ast.ListComp(elt=part) | ast.SetComp(elt=part) | ast.GeneratorExp(elt=part):
                return is_paddles(part)
            case ast.IfExp(body=one, orelse=other) | ast.BinOp(left=one, right=other):
                return is_paddles(one) or is_paddles(other)
            case ast.Call(func=ast.Name(id="getattr" | "vars" | "list" | "zip" | "enumerate"), args=arguments):
                return any(is_paddles(argument) for argument in arguments)
        return False

    while True:  # names of names
        given: list[tuple[ast.AST, ast.AST | None]] = []
        for node in nodes:
            if isinstance(node, ast.Assign):
                given += [(target, node.value) for target in node.targets]
            elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
                given.append((node.target, node.value))
            elif isinstance(node, ast.For | ast.comprehension):
                given.append((node.target, node.iter))
        new = {
            name.id
            for target, value in given
            if isinstance(target, ast.Name | ast.Tuple | ast.List) and is_paddles(value)
            for name in ast.walk(target)
            if isinstance(name, ast.Name)
        }
        if new <= paddles:
            break
        paddles |= new

    for node in nodes:
        match node:
            case ast.Attribute(value=value, ctx=ast.Store() | ast.Del()) if is_paddles(value):
                yield node.lineno
            case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[owner, *_]) if is_paddles(owner):
                yield node.lineno
            case ast.Call(func=ast.Attribute(attr="__setattr__" | "__delattr__"), args=[owner, *_]):
                if is_paddles(owner):
                    yield node.lineno
            case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()) if is_namespace(value) and is_paddles(value):
                yield node.lineno
            case ast.Call(func=ast.Attribute(value=value, attr="update" | "setdefault" | "pop")):
                if is_namespace(value) and is_paddles(value):
                    yield node.lineno
            case ast.Import(names=names) if any(alias.name.startswith("unittest") for alias in names):
                yield node.lineno
            case ast.ImportFrom(module=str(module)) if module.startswith("unittest"):
                yield node.lineno


def is_namespace(node: ast.AST) -> bool:
    """Whether this is `vars(...)` or `....__dict__`."""
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "vars"
    return called or (isinstance(node, ast.Attribute) and node.attr == "__dict__")


def test_no_workaround_elsewhere() -> None:
    """What changes a Paddle module or class is a workaround, and belongs in nlpctl/upstream."""
    lines = [
        f"{path.relative_to(ROOT)}:{line}"
        for name, path in MODULES.items()
        if not name.startswith("nlpctl.upstream")
        for line in patches(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not lines, lines


@pytest.mark.parametrize(
    ("code", "is_one"),
    [
        ("paddle.nn.Linear.forward = fast", True),
        ("F.gelu = fast", True),
        ("del F.gelu", True),
        ("Linear.calls: int = 0", True),
        ("Linear.calls += 1", True),
        ("eager = paddle.base.core.eager\neager.run_backward = once", True),
        ("a, eager.run, b = 1, 2, 3\neager = paddle.base.core.eager", True),
        ("setattr(F, 'gelu', fast)", True),
        ("delattr(Linear, 'forward')", True),
        ("type.__setattr__(Linear, 'forward', fast)", True),
        ("vars(F)['gelu'] = fast", True),
        ("F.__dict__.update(gelu=fast)", True),
        ("a: list = [(F, 'gelu')]\nb = [p for p in a]\nfor owner, n in b:\n    setattr(owner, n, 1)", True),
        ("for owner in (F, Linear):\n    owner.gelu = fast", True),
        ("from unittest import mock", True),
        ("layer = Linear(2, 2)\nlayer.weight = 1", False),
        ("for layer in network.sublayers():\n    setattr(layer, 'p', 0)", False),
        ("class Own(Linear):\n    def __init__(self):\n        self.size = 1", False),
        ("flags = F.flags()\nflags['a'] = 1", False),
    ],
)
def test_the_check_of_workarounds_sees_every_way(code: str, is_one: bool) -> None:
    imports = "import paddle\nimport paddle.nn.functional as F\nfrom paddle.nn import Linear\n"
    assert bool(list(patches(ast.parse(imports + code)))) == is_one


def test_a_task_is_named_in_its_own_modules_only() -> None:
    """What the rest asks of a task is a capability in its description (config/tasks.py)."""
    code = {info.name: {path.split(":")[0] for path in (info.task, info.rows)} for info in KNOWN_TASKS}
    shared = [module for modules in code.values() for module in modules]
    own = {
        name: {"nlpctl.config.tasks", *(each for each in modules if shared.count(each) == 1)}
        for name, modules in code.items()
    }
    named_elsewhere = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in own and module not in own[node.value]
    ]
    assert not named_elsewhere, "\n".join(named_elsewhere)


# What names options below the commands, and why.
NAMES_OPTIONS = {
    "nlpctl.config.reference": "writes the page on keys, which lists their flags",
    "nlpctl.report.html": "variables of style sheets",
    "nlpctl.report.plots": "the same",
    "nlpctl.runs.runs": "a command, and another end of it",
}
# Whole commands, for a shell; and options of other programs.
COMMAND_IN_TEXT = re.compile(
    r"`[^`]*`|\bnlpctl( [a-z-]+)+[: ][^;,)]*|pip install .*|ray start .*|with --gpus all|ulimit -n"
)
OPTION_IN_TEXT = re.compile(r"(?<![\w-])(--[a-z][\w-]*|-[on]\b)")


def named_options(tree: ast.AST) -> Iterator[str]:
    """The options that strings name, but for docstrings and the words of commands that are started."""
    left_out: set[ast.AST] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant() as text):
                left_out.add(text)
            case ast.JoinedStr():
                left_out |= {part for part in ast.walk(node) if isinstance(part, ast.Constant)}
            case ast.List(elts=words):
                left_out |= set(words)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=words):
                if name in ("python_until_parent_ends", "to_go_on"):  # a command line, and more words of one
                    left_out |= set(words)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and node not in left_out:
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in left_out:
            text = node.value
        else:
            continue
        yield from OPTION_IN_TEXT.findall(COMMAND_IN_TEXT.sub("", text))


def test_no_message_below_the_commands_names_a_flag() -> None:
    """A message marks an option, and the command line or Python spells it (nlpctl/spelling.py)."""
    found = {
        name: options
        for name, path in MODULES.items()
        if not name.startswith(("nlpctl.cli", "nlpctl.spelling"))
        and (options := [*named_options(ast.parse(path.read_text(encoding="utf-8")))])
    }
    assert found.keys() == NAMES_OPTIONS.keys(), found


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("hint = 'use --overwrite, or another -o FOLDER'", ["--overwrite", "-o"]),
        ("hint = f'use {x} --resume'", ["--resume"]),
        ("hint = 'run `nlpctl train X --resume`, or nlpctl eval X --by Y; or --near'", ["--near"]),
        ("hint = f'run `nlpctl train {x} --resume`'", []),
        ("start(['train', '--resume'])", []),
        ("def f():\n    '''Takes --resume.'''", []),
        ("hint = 'use @[overwrite=true], well-known'", []),
    ],
)
def test_the_check_of_messages_sees_flags(code: str, named: list[str]) -> None:
    assert list(named_options(ast.parse(code))) == named


def test_no_comprehension_counts_with_the_name_of_a_function() -> None:
    """Python 3.12.1 takes the function for an unset variable in the other comprehensions of the same block."""
    found = [f"{name}: {told}" for name, path in MODULES.items() for told in _borrowed(path.read_text("utf-8"))]
    assert not found, found


def test_the_check_of_comprehensions_sees_a_borrowed_name() -> None:
    text = "from a import place\ndef f(c):\n    g = [c[place] for place in c]\n    return [place(each) for each in g]\n"
    assert list(_borrowed(text)) == ["place in line 3"]
    assert not list(_borrowed(text.replace("[place] for place in", "[i] for i in")))


def _borrowed(text: str) -> Iterator[str]:
    tree = ast.parse(text)
    imported = {alias.asname or alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
                for alias in node.names}  # fmt: skip
    known = imported | {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            targets = (name for each in node.generators for name in ast.walk(each.target) if isinstance(name, ast.Name))
            yield from (f"{name.id} in line {node.lineno}" for name in targets if name.id in known)


READMES = ("README.md", "README.zh-CN.md")


def code_blocks(text: str) -> list[str]:
    """The fenced blocks without their comments, which are translated."""
    blocks = re.findall(r"^```\w*\n(.*?)^```$", text, flags=re.M | re.S)
    return ["\n".join(re.sub(r"\s*#.*", "", line) for line in block.splitlines()) for block in blocks]


def shown(name: str) -> set[str]:
    """The commands in the code blocks of a page."""
    blocks = code_blocks((ROOT / name).read_text(encoding="utf-8"))
    return {found for block in blocks for found in re.findall(r"(?:^|\| )nlpctl ([a-z][\w-]*)", block, flags=re.M)}


@pytest.mark.parametrize("name", READMES)
def test_readme_commands_exist(name: str) -> None:
    unknown = shown(name) - {command.name for command in COMMANDS}
    assert not unknown, "no such command"


@pytest.mark.parametrize("name", ["docs/commands.md", "docs/zh-CN/commands.md"])
def test_the_page_of_commands_lists_and_shows_each(name: str) -> None:
    listed = re.findall(r"^\| `nlpctl ([a-z][\w-]*)", (ROOT / name).read_text(encoding="utf-8"), flags=re.M)
    assert sorted(listed) == sorted(command.name for command in COMMANDS)
    assert shown(name) == set(listed)


@pytest.mark.parametrize("name", [*READMES, *(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/*.md"))])
def test_paths_in_the_docs_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    named = re.findall(r"(?:recipes|scripts|docs|configs)/[\w./-]*\w\.(?:yaml|sh|py|md)", text)
    links = [link for link in re.findall(r"\]\((?!https?:)([^)#]+)", text)]
    missing = {path for path in named if not (ROOT / path).exists()}
    missing |= {link for link in links if not (ROOT / name).parent.joinpath(link).exists()}
    assert not missing


def test_the_chinese_readme_mirrors_the_english() -> None:
    english, chinese = ((ROOT / name).read_text(encoding="utf-8") for name in READMES)

    def shape(text: str) -> list[int]:
        outside = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
        return [len(marks) for marks in re.findall(r"^(#+) ", outside, flags=re.M)]

    assert shape(english) == shape(chinese)
    assert code_blocks(english) == code_blocks(chinese)
    assert len(code_blocks(english)) >= 5
