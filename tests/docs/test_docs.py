"""What the documentation says is so: its code runs, its commands exist and print what it says."""

from __future__ import annotations

import doctest
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from strandline import SessionManager
from strandline.cli.chat_commands import COMMANDS as CHAT_COMMANDS
from strandline.cli.main import main
from strandline.runtime.announcing import SPAWN, SUBAGENT
from strandline.settings import load
from strandline.testing import Reply, ScriptedModelServer

ROOT = Path(__file__).parents[2]
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


class Block(NamedTuple):
    """A fenced block: what it is of, where it begins (the fence's line, from 1), its lines."""

    page: Path
    language: str
    line: int
    lines: list[str]

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks_of(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in their order."""
    block: Block | None = None
    for number, line in enumerate(page.read_text(encoding="utf-8").split("\n"), 1):
        if block is not None and line.strip() == "```":
            yield block
            block = None
        elif block is not None:
            block.lines.append(line)
        elif line.startswith("```"):
            block = Block(page, line.removeprefix("```").strip(), number, [])
    assert block is None, f"{page.name}: a fence is not closed"


def blocks(language: str, pages: Sequence[Path] = GUIDES) -> list[Block]:
    return [each for page in pages for each in blocks_of(page) if each.language == language]


def guide(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


# -- code ----------------------------------------------------------------------------------


@pytest.mark.parametrize("page", sorted({b.page for b in blocks("python")}), ids=lambda p: p.name)
def test_the_python_blocks_of_a_page_run_in_their_order(page: Path, tmp_path: Path) -> None:
    """In an empty folder, any warning an error; tracebacks name the lines of the page."""
    source: list[str] = []
    for block in blocks("python", [page]):
        source += [""] * (block.line - len(source)) + block.lines
    script = tmp_path / f"{page.name}.py"
    script.write_text("\n".join(source), encoding="utf-8")
    (tmp_path / "empty").mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=tmp_path / "empty",
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


WITH_DOCTESTS = [
    path.relative_to(ROOT / "src").with_suffix("").as_posix().replace("/", ".")
    for path in sorted((ROOT / "src").rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("module", WITH_DOCTESTS)
def test_the_examples_in_docstrings_are_true(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0


# -- settings ------------------------------------------------------------------------------


@pytest.mark.parametrize("block", blocks("json5"), ids=str)
def test_a_configuration_in_the_documentation_loads(block: Block, tmp_path: Path) -> None:
    (tmp_path / "strandline.json").write_text(block.text, encoding="utf-8")
    environ = dict.fromkeys(re.findall(r"\$\{(\w+)\}", block.text), "secret")
    loaded = load(tmp_path, environ)
    assert loaded.path == tmp_path / "strandline.json"
    assert loaded.warnings == ()


def tables(text: str) -> Iterator[list[str]]:
    """The cells of every row of every table."""
    for line in text.split("\n"):
        if line.startswith("| ") and not line.startswith("| ---"):
            cells = re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))
            yield [cell.strip().replace("\\|", "|") for cell in cells]


# -- commands ------------------------------------------------------------------------------


def commands_in(block: Block) -> Iterator[list[str]]:
    """The words of every command line of a console block, each part of a pipe by itself."""
    for line in block.lines:
        if not line.startswith("$ "):
            continue
        lexer = shlex.shlex(line[2:], posix=True, punctuation_chars="|;&")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in lexer:
            if set(word) <= set("|;&"):
                yield words
                words = []
            else:
                words.append(word)
        yield words


@pytest.mark.parametrize("block", blocks("console", PAGES), ids=str)
def test_the_commands_of_a_console_block_exist(block: Block) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for program, *words in commands_in(block):
        if Path(program).name == "strandline":
            understand(words)
        elif program == "make":
            for target in (word for word in words if "=" not in word):
                assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE), target


def as_typed(command: click.Command, **more: Any) -> click.Context:
    """A context as the command line makes it: a command remembers its help option from it."""
    return click.Context(command, help_option_names=["-h", "--help"], **more)


def understand(words: list[str]) -> None:
    """Read a command line as click would, without running it or looking at files."""
    command: click.Command = main
    context = as_typed(main, info_name="strandline")
    while True:
        values, rest, _ = command.make_parser(context).parse_args(words)
        if not isinstance(command, click.Group):
            break
        found = command.get_command(context, rest[0])
        assert found is not None, f"no command {rest[0]!r} in {context.command_path}"
        command, context = found, as_typed(found, info_name=rest[0], parent=context)
        words = rest[1:]
    assert rest == [], f"{context.command_path} does not take {rest}"
    for param in command.get_params(context):
        given = values.get(param.name or "")
        if isinstance(given, str) and isinstance(param.type, click.Choice):
            param.type.convert(given, param, context)
        is_given = isinstance(given, str) or (isinstance(given, list | tuple) and given)
        assert is_given or not param.required, f"{param.name} is missing"


def all_commands() -> dict[str, click.Command]:
    """Every command, by its full name."""
    found: dict[str, click.Command] = {}
    waiting: list[tuple[str, click.Command]] = [("strandline", main)]
    while waiting:
        name, command = waiting.pop(0)
        found[name] = command
        if isinstance(command, click.Group):
            context = as_typed(command)
            for word in command.list_commands(context):
                inner = command.get_command(context, word)
                assert inner is not None
                waiting.append((f"{name} {word}", inner))
    return found


def cli_sections() -> dict[str, str]:
    """The text of cli.md below each of its headings."""
    parts = re.split(r"^## (.+)$", guide("cli.md"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_command_has_a_section() -> None:
    assert sorted(cli_sections()) == sorted(all_commands())


@pytest.mark.parametrize("name", all_commands())
def test_a_section_names_every_option_and_argument_and_no_other(name: str) -> None:
    command, section = all_commands()[name], cli_sections()[name]
    context = as_typed(command)
    options: set[str] = set()
    for param in command.get_params(context):
        if isinstance(param, click.Option):
            options.update(param.opts, param.secondary_opts)
        else:
            word = param.make_metavar(context).strip("[]")
            assert re.search(rf"\b{word}\b", section), word
    told = {
        spelling for cells in tables(section) for spelling in re.findall(r"`(--?[a-z-]+)", cells[0])
    }
    assert told - {"-h", "--help"} == options - {"-h", "--help"}


def test_every_line_that_begins_with_a_slash_in_a_chat_is_told() -> None:
    told = [cells[0].strip("`") for cells in tables(cli_sections()["strandline chat"])]
    commands = [f"{each.name} {each.arguments}".strip() for each in CHAT_COMMANDS]
    assert [line for line in told if line.startswith("/")] == commands


# -- what commands print -------------------------------------------------------------------

DAMAGED = b'{"type":"session","version":3,"id":"x","cwd":"/"}\nbad\n{"type":"message","id":"a"}\n'


def say_much(session: SessionManager) -> None:
    """A conversation in which there is something to compact, and a file that was written."""
    for number in range(8):
        session.append_message({"role": "user", "content": f"{number} " + "tide " * 1000})
        call = {"type": "toolCall", "id": f"c{number}", "name": "write", "arguments": {"path": "a"}}
        answer = {"role": "assistant", "content": [call], "stopReason": "toolUse"}
        session.append_message(answer)
        result = {"role": "toolResult", "toolCallId": f"c{number}", "toolName": "write"}
        session.append_message({**result, "content": [], "isError": False})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a transcript, a damaged one, and a state directory with one conversation."""
    folder = tmp_path_factory.mktemp("commands")
    with SessionManager.create(session_dir=folder / "good", session_id="s", cwd="/") as session:
        session.append_model_change("mine", "large")
        session.append_label(session.append_message({"role": "user", "content": "Hello."}), "hi")
    with SessionManager.create(session_dir=folder / "long", session_id="s", cwd="/") as session:
        session.append_model_change("mine", "large")
        say_much(session)
    (folder / "damaged.jsonl").write_bytes(DAMAGED)
    (folder / "rules.json5").write_text("{ context: { maxMessages: 6 } }", encoding="utf-8")
    with ScriptedModelServer([Reply("Hello."), Reply("Hello.")]) as server:
        model = {"id": "large", "contextWindow": 16_000, "maxTokens": 500}
        settings = {
            "models": {"providers": {"mine": {"baseUrl": server.base_url, "models": [model]}}},
            "agents": {"defaults": {"model": "mine/large"}},
        }
        (folder / "state").mkdir()
        (folder / "state" / "strandline.json").write_text(json.dumps(settings), encoding="utf-8")
        run(folder, "agent", "--message", "Hello.")
        run(folder, "plugins", "install", "--link", str(ROOT / "examples" / "engine"))
        yield folder


def run(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "strandline", "--state-dir", "state", *words],
        cwd=folder,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.stderr == "", done.stderr
    return done.stdout


GOOD, LONG = "good/s.jsonl", "long/s.jsonl"
SCENES: Mapping[str, Sequence[str]] = {
    "strandline agent": ["agent", "--message", "Hello."],
    "strandline sessions": ["sessions"],
    "strandline status": ["status"],
    "strandline doctor": ["doctor"],
    "strandline context explain": ["context", "explain", LONG, "--config", "rules.json5"],
    "strandline context replay": ["context", "replay", LONG],
    "strandline plugins list": ["plugins", "list"],
    "strandline session show": ["session", "show", GOOD],
    "strandline session tree": ["session", "tree", GOOD],
    "strandline session context": ["session", "context", GOOD],
    "strandline session list": ["session", "list", "good"],
    "strandline session verify": ["session", "verify", "damaged.jsonl"],
    "strandline session repair": ["session", "repair", "damaged.jsonl"],
    "strandline session branch": ["session", "branch", GOOD, "hi"],
    "strandline session compact": ["session", "compact", LONG, "--dry-run"],
    "strandline session fork": ["session", "fork", GOOD, "hi", "--to", "forks"],
    "strandline session label": ["session", "label", GOOD, "hi", "question"],
    "strandline session export": ["session", "export", GOOD, "-o", "out.md"],
}


def test_there_is_an_example_of_all_json_that_is_printed() -> None:
    printing = [
        name
        for name, command in all_commands().items()
        if any("--json" in param.opts for param in command.params)
    ]
    assert sorted(SCENES) == sorted(printing)


@pytest.mark.parametrize("name", SCENES)
def test_the_json_of_a_command_has_the_keys_that_are_told(name: str, place: Path) -> None:
    told = re.search(r"^```json\n(.*?)^```", cli_sections()[name], re.MULTILINE | re.DOTALL)
    assert told is not None
    printed = json.loads(run(place, *SCENES[name], "--json"))
    assert_same_keys(json.loads(told[1]), printed, name)


def assert_same_keys(told: Any, printed: Any, where: str) -> None:
    """The same keys, all the way down; of a list the first item stands for all."""
    if isinstance(told, dict) and isinstance(printed, dict):
        assert list(told) == list(printed), where
        for key in told:
            assert_same_keys(told[key], printed[key], f"{where}.{key}")
    elif isinstance(told, list) and isinstance(printed, list) and told:
        assert printed, f"{where} is empty"
        assert_same_keys(told[0], printed[0], f"{where}[0]")


def test_the_taste_in_the_readme_is_what_the_command_prints(tmp_path: Path) -> None:
    """The lines from the table on; above them stands when it was printed."""
    (tmp_path / "rules.json5").write_text("{ context: { maxMessages: 6 } }", encoding="utf-8")
    shutil.copy(ROOT / "examples" / "demo" / "harbour.jsonl", tmp_path)
    printed = run(tmp_path, "context", "explain", "harbour.jsonl", "--config", "rules.json5")
    (told,) = blocks("text", [ROOT / "README.md"])
    assert printed.endswith(f"\n\n{told.text}")


# -- names ---------------------------------------------------------------------------------


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_the_names_of_our_modules_and_classes_are_real(page: Path) -> None:
    prose = page.read_text(encoding="utf-8")
    for name in re.findall(r"`(strandline(?:\.\w+)+)(?:\(\))?`", prose):
        if name.startswith("strandline.json") or name in {SPAWN, SUBAGENT}:
            continue
        assert is_name_of_ours(name), name


def is_name_of_ours(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        home, _, attribute = name.rpartition(".")
        return bool(home) and hasattr(importlib.import_module(home), attribute)
    return True


# -- links ---------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """The names that a page's headings have, as GitHub makes them."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        assert there.exists(), f"{page.name} leads to {target}, which is not there"
        if anchor:
            assert anchor in anchors(there), f"{page.name} leads to {target}: no such heading"
