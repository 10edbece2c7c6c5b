"""The documentation is complete: every command, setting and key stands in it.

Each test lists what is missing, in the form it is looked for.
"""

import inspect
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from worker.cli.root import cli
from worker.keys import AgentKeys, Keys
from worker.settings import Settings, variable

ROOT = Path(__file__).parents[1]
READMES = ("README.md", "README.zh-CN.md")


def text(name: str) -> str:
    """A file of the documentation; empty where it is not written yet."""
    path = ROOT / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


def docs() -> dict[str, str]:
    """Every page and its text."""
    pages = [*READMES, *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
    return {name: text(name) for name in pages}


def everywhere() -> str:
    """The English documentation in one text."""
    return "\n".join(page for name, page in docs().items() if name != "README.zh-CN.md")


def listed(title: str, lines: list[str]) -> str:
    """A message with everything that is missing, a line each."""
    return "\n".join([title, *lines])


# Commands


def commands(group: click.Command, path: tuple[str, ...] = ("remq",)) -> Iterator[str]:
    """Every command below a group, as it is typed."""
    if not isinstance(group, click.Group):
        yield " ".join(path)
        return
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield from commands(command, (*path, name))


def test_every_command_is_documented() -> None:
    page = everywhere()
    missing = [name for name in commands(cli) if not re.search(rf"\b{name}(?![\w-])", page)]
    assert not missing, listed("Write out in docs/commands.md:", missing)


# Settings


#: How docs/settings.md shows that a setting has no default.
NONE = "–"


def default(name: str) -> str:
    """A setting's default as docs/settings.md shows it: `30`, `false`, `auto`, or –."""
    value: Any = Settings.model_fields[name].default
    if value in (None, ""):
        return NONE
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def documented() -> dict[str, str]:
    """The defaults that the tables of docs/settings.md give, by variable."""
    defaults: dict[str, str] = {}
    column: int | None = None
    for line in text("docs/settings.md").splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if cells[0] == "variable":
            column = cells.index("default") if "default" in cells else None
        elif line.startswith("| `") and column is not None:
            defaults[cells[0].strip("`")] = cells[column].replace(",", "")
    return defaults


def test_every_setting_is_documented_with_its_default() -> None:
    given = documented()
    missing = [
        f"`{variable(name)}` with the default {default(name)}"
        for name in Settings.model_fields
        if given.get(variable(name)) != default(name)
    ]
    assert not missing, listed("The tables of docs/settings.md lack:", missing)


def test_no_setting_is_documented_that_is_gone() -> None:
    known = {variable(name) for name in Settings.model_fields}
    # Ports that only these two files know.
    known |= set(re.findall(r"REMQ_\w+", text("Procfile") + text("docker-compose.yml")))
    gone = {name for name in documented() if name.startswith("REMQ_")} - known
    assert not gone, "no such setting"


# Keys


def names(keys: Keys | AgentKeys) -> Iterator[str]:
    """Every key that a class builds, `<id>` where it needs one."""
    for name, member in inspect.getmembers(type(keys)):
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield getattr(keys, name)
        elif inspect.isfunction(member):
            arguments = len(inspect.signature(member).parameters) - 1
            key = member(keys, *["<id>"] * arguments)
            if isinstance(key, str):
                yield key


def test_every_key_is_documented() -> None:
    page = text("docs/data-model.md")
    missing = [
        f"`{key}`"
        for key in [*names(Keys("remq")), *names(AgentKeys("remq", "agent"))]
        if f"`{key}`" not in page and not (key.endswith(":") and f"`{key}<" in page)
    ]
    assert not missing, listed("docs/data-model.md lacks:", missing)


# The two READMEs, and the pages among themselves


def outside_code(page: str) -> str:
    """A page without its blocks of code, where a `#` is no heading and a bracket no link."""
    return re.sub(r"^ *```.*?^ *```", "", page, flags=re.MULTILINE | re.DOTALL)


def test_both_readmes_have_the_same_parts() -> None:
    english, chinese = (
        re.findall(r"^(#+) ", outside_code(text(name)), re.MULTILINE) for name in READMES
    )
    assert english, "README.md has no heading"
    assert english == chinese, "the levels of the headings, in order"


@pytest.mark.parametrize("name", list(docs()))
def test_every_link_leads_somewhere(name: str) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", outside_code(docs()[name]))
    own = [target for target in targets if not re.match(r"[a-z]+:", target)]
    dead = [target for target in own if not (ROOT / name).parent.joinpath(target).exists()]
    assert not dead


# What no file may hold


def committed() -> list[Path]:
    """Every file that git holds or would take up."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no clone of the repository")
    paths = [ROOT / name for name in done.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def test_no_file_names_a_package_registry_or_a_place_on_one_machine() -> None:
    # Put together here, so that this file passes its own test.
    names = "pypi", "pythonhosted", "npmjs", "yarnpkg", "crates", "debian", "ubuntu", "alpinelinux"
    host = rf"(?:{'|'.join(names)})\.(?:{'|'.join(('org', 'com', 'io', 'net'))})\b"
    place = r"(?<![\w.~$}*<>-])/(?:work|root|home/[a-z]\w*|Users/\w+|opt/(?:pypi|wheels)|tmp/\w+)/"
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {found[0]}"
        for path in committed()
        for number, line in enumerate(lines_of(path), 1)
        for found in re.finditer(f"{host}|{place}", line)
    ]
    assert not wrong, listed("Not to be committed:", wrong)


def test_no_file_names_a_page_that_is_not_there() -> None:
    pages = {path.name for path in committed() if path.suffix == ".md"}
    own = r"(?<![\w/.-])(?:[\w-]+/)*([\w-]+\.md)\b"
    # Papers that are no part of the repository; in brackets, so that this file passes its own test.
    plans = "[S]EED|[D]ESIGN|[B]RIEF|[S]TYLE"
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {found[0]}"
        for path in committed()
        if path.suffix in {".py", ".md", ".lua", ".yml", ".toml"}
        for number, line in enumerate(lines_of(path), 1)
        for found in re.finditer(rf"\b(?:{plans})\b|{own}", line)
        if found[1] not in pages
    ]
    assert not wrong, listed("Name a page of docs/ instead:", wrong)


def lines_of(path: Path) -> list[str]:
    """A file's lines; none where it is not text."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return []
