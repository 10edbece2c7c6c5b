"""Who may know whom: the arrows between modules, as docs/architecture.md draws them.

    roles, commands → sleep, memory → keys
    worker → producer → standard library, redis

An arrow that is forbidden is forbidden through others too; the message shows the way it took.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from itertools import pairwise
from pathlib import Path

import grimp
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
OURS = ("producer", "worker")

#: Processes of their own: they know everything below, nothing below knows them.
ROLES = [
    "worker.writer",
    "worker.scheduler",
    "worker.jobs",
    "worker.recaller",
    "worker.rqworker",
    "worker.horse",
]
#: Where a process begins: only here are settings read from the environment.
EDGES = re.compile(r"worker\.(cli(\..+)?|__main__|jobs|rqworker|horse)")
#: Who else looks into the environment: the settings, an agent's client for its server and prefix,
#: and the demo, which copies it for a subprocess.
READERS = {"worker.settings", "producer.client", "worker.demo.story"}
#: Told the time, handed the memories: the core that can be tested without a server.
PURE = [
    "worker.memory.bm25",
    "worker.memory.item",
    "worker.memory.recall",
    "worker.memory.text",
    "worker.sleep.answers",
    "worker.sleep.model",
    "worker.sleep.offline",
    "worker.sleep.plan",
    "worker.sleep.prompts",
    "worker.sleep.reasoning",
    "worker.sleep.report",
]


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Every import of producer and worker, those inside functions too."""
    return grimp.build_graph(*OURS, include_external_packages=True, cache_dir=None)


def modules(graph: grimp.ImportGraph, package: str) -> list[str]:
    """A package's modules, itself the first."""
    return sorted({package} | graph.find_descendants(package))


def ways(graph: grimp.ImportGraph, importer: str, imported: str) -> list[str]:
    """The shortest ways from one module or package to another, in words."""
    if not {importer, imported} <= graph.modules:
        return []
    chains = graph.find_shortest_chains(importer, imported, as_packages=True)
    return sorted(in_words(graph, chain) for chain in chains)


def in_words(graph: grimp.ImportGraph, chain: tuple[str, ...]) -> str:
    steps = [chain[0]]
    for importer, imported in pairwise(chain):
        [details, *_] = graph.get_import_details(importer=importer, imported=imported)
        steps.append(f"{imported} (line {details['line_number']})")
    return " → ".join(steps)


def third_party(graph: grimp.ImportGraph, module: str) -> set[str]:
    """The packages of others that a module imports itself."""
    tops = {name.partition(".")[0] for name in graph.find_modules_directly_imported_by(module)}
    return tops - set(OURS) - sys.stdlib_module_names


# Packages


def test_producer_stands_on_the_standard_library_and_redis_alone(graph: grimp.ImportGraph) -> None:
    for module in modules(graph, "producer"):
        assert third_party(graph, module) <= {"redis"}, module
    assert not ways(graph, "producer", "worker"), "an agent installs no worker"


def test_every_package_that_is_imported_is_asked_for_in_pyproject(
    graph: grimp.ImportGraph,
) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *project["optional-dependencies"]["embedded"]]
    asked = {canonicalize_name(Requirement(line).name) for line in lines}
    owners = packages_distributions()
    missing = {
        f"{package}, imported by {module}"
        for top in OURS
        for module in modules(graph, top)
        for package in third_party(graph, module)
        if not asked & {canonicalize_name(owner) for owner in owners.get(package, [package])}
    }
    assert not missing, "it is installed here by chance"


@pytest.mark.parametrize(
    ("package", "place"),
    [("openai", "worker.sleep.llm"), ("click", "worker.cli"), ("rich", "worker.cli")],
)
def test_a_package_is_imported_in_one_place(
    graph: grimp.ImportGraph, package: str, place: str
) -> None:
    importers = graph.find_modules_that_directly_import(package)
    strangers = {name for name in importers if name != place and not name.startswith(f"{place}.")}
    assert not strangers, f"{package} belongs to {place}"


# Rooms


def test_keys_know_only_the_names_that_agents_share(graph: grimp.ImportGraph) -> None:
    imported = graph.find_modules_directly_imported_by("worker.keys")
    assert {name for name in imported if name.startswith(OURS)} <= {"producer.keys", "producer"}


def test_memory_knows_neither_sleep_nor_a_model(graph: grimp.ImportGraph) -> None:
    assert not ways(graph, "worker.memory", "worker.sleep")
    assert not ways(graph, "worker.memory", "openai")


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("room", ["worker.memory", "worker.sleep"])
def test_no_room_knows_a_role(graph: grimp.ImportGraph, room: str, role: str) -> None:
    assert role in graph.modules
    assert not ways(graph, room, role)


@pytest.mark.parametrize("above", ["worker.runs", "worker.config", "worker.consolidation"])
def test_sleep_knows_neither_the_runs_nor_the_pass_that_uses_it(
    graph: grimp.ImportGraph, above: str
) -> None:
    assert above in graph.modules
    assert not ways(graph, "worker.sleep", above)


@pytest.mark.parametrize("module", PURE)
def test_the_core_knows_no_server(graph: grimp.ImportGraph, module: str) -> None:
    assert module in graph.modules
    assert not ways(graph, module, "redis")


def test_nobody_but_the_start_of_a_process_knows_the_commands(graph: grimp.ImportGraph) -> None:
    commands = {"worker.__main__", "worker.horse", *modules(graph, "worker.cli")}
    strangers = {
        f"{module} imports {command}"
        for command in modules(graph, "worker.cli")
        for module in graph.find_modules_that_directly_import(command)
        if module not in commands
    }
    assert not strangers


# The environment


class Reads(ast.NodeVisitor):
    """Where a module reads settings or the environment: `what (line n)`, in or out of a function.

    `Settings()` counts, as it reads the environment too.
    """

    def __init__(self) -> None:
        self.settings: list[str] = []
        self.environment: list[str] = []
        self.at_import: list[str] = []
        self._names: dict[str, str] = {}
        self._depth = 0

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for name in node.names:
            self._names[name.asname or name.name] = f"{node.module}.{name.name}"

    def visit_Import(self, node: ast.Import) -> None:
        for name in node.names:
            if name.asname:
                self._names[name.asname] = name.name

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for outside in (*node.decorator_list, node.args):
            self.visit(outside)
        self._depth += 1
        for statement in node.body:
            self.visit(statement)
        self._depth -= 1

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._depth += 1
        self.visit(node.body)
        self._depth -= 1

    def visit_Call(self, node: ast.Call) -> None:
        if self._full(node.func) in ("worker.settings.load", "worker.settings.Settings"):
            self._found(self.settings, node)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if self._full(node) in ("os.environ", "os.getenv"):
            self._found(self.environment, node)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if self._full(node) in ("os.environ", "os.getenv"):
            self._found(self.environment, node)

    def _found(self, into: list[str], node: ast.expr) -> None:
        where = f"{ast.unparse(node)} (line {node.lineno})"
        into.append(where)
        if not self._depth:
            self.at_import.append(where)

    def _full(self, node: ast.expr) -> str:
        name = ast.unparse(node)
        first, dot, rest = name.partition(".")
        return self._names.get(first, first) + dot + rest


def reads() -> Iterator[tuple[str, Reads]]:
    """Each of our modules and what it reads."""
    for package in OURS:
        for file in sorted((ROOT / package).rglob("*.py")):
            found = Reads()
            found.visit(ast.parse(file.read_text(encoding="utf-8")))
            parts = file.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts).removesuffix(".__init__"), found


def test_settings_are_read_at_the_edge_and_handed_down() -> None:
    strangers = {
        module: found.settings
        for module, found in reads()
        if found.settings and not EDGES.fullmatch(module) and module != "worker.settings"
    }
    assert not strangers, "settings are an argument below the edge"


def test_the_environment_is_read_at_the_edge_too() -> None:
    strangers = {
        module: found.environment
        for module, found in reads()
        if found.environment and not EDGES.fullmatch(module) and module not in READERS
    }
    assert not strangers, "make it a setting"


def test_nothing_reads_the_environment_at_import() -> None:
    early = {module: found.at_import for module, found in reads() if found.at_import}
    assert not early


def test_the_readings_are_found() -> None:
    found = Reads()
    found.visit(
        ast.parse(
            "import os\n"
            "from os import environ as e\n"
            "from worker import settings as environment\n"
            "from worker.settings import Settings, load\n"
            "home = os.environ['HOME']\n"
            "def f(home=e['HOME']):\n"
            "    return environment.load(), load(), Settings(), os.getenv('HOME')\n"
        )
    )
    assert found.at_import == ["os.environ (line 5)", "e (line 6)"]
    assert found.environment == [*found.at_import, "os.getenv (line 7)"]
    assert found.settings == [
        f"{call} (line 7)" for call in ("environment.load()", "load()", "Settings()")
    ]
