"""Commands of packages beside Klamm: listed, run, lazy; what is broken disturbs nobody."""

import json
import os
from pathlib import Path

import pytest
from support.klamm import klamm

EXAMPLE = Path(__file__).parents[2] / "examples/plugin/src"

MODULE = """
from klamm_plugins.hookspecs import hookimpl
from klamm_plugins.command import Command

@hookimpl
def register_commands():
    return [
        Command(name="echo-words", help="Says them.", target="acme_words:main"),
        Command(name="fails", help="Fails.", target="acme_words:fails"),
        Command(name="misconfigured", help="Fails.", target="acme_words:misconfigured"),
        Command(name="lost", help="Is not there.", target="acme_words:nothing"),
        Command(name="gone", help="Is not there.", target="acme_gone:main"),
        Command(name="topic", help="Not to be had.", target="acme_words:main"),
    ]
"""
WORDS = """
from klamm_base.errors import ConfigError, KlammError

def main(words):
    print("|".join(words))
    return 3 if "three" in words else None

def fails(words):
    raise KlammError("the till is empty")

def misconfigured(words):
    raise ConfigError("no till is configured")
"""


def package(site, name, entry, **modules):
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[klamm]\n{name} = {entry}\n")
    for module, text in modules.items():
        (site / f"{module}.py").write_text(text)


@pytest.fixture(scope="module")
def run(processes, tmp_path_factory):
    site = tmp_path_factory.mktemp("site")
    package(site, "acme", "acme_hooks", acme_hooks=MODULE, acme_words=WORDS)
    package(site, "bad", "bad_hooks", bad_hooks="raise RuntimeError('cannot')")
    package(site, "worse", "worse_hooks", worse_hooks=MODULE.replace("echo-words", "Echo Words"))
    package(site, "example", "klamm_example")
    path = os.pathsep.join([str(site), str(EXAMPLE)])
    return lambda *words: klamm(*words, PYTHONPATH=path)


def test_help_lists_them_and_tells_what_is_broken(run):
    shown = run("--help")
    assert shown.returncode == 0
    text = " ".join(shown.stdout.split())
    assert "echo-words Says them." in text
    assert "example Print orders" in text
    said = shown.stderr.splitlines()
    assert said[0] == "klamm: package bad has no usable commands: RuntimeError: cannot"
    assert said[1].startswith(
        "klamm: package worse has no usable commands: KlammError: 'Echo Words' is no name"
    )
    assert len(said) == 2


def test_a_function_gets_the_words(run):
    done = run("echo-words", "a", "--help", "-x=1", "--", "b")
    assert (done.returncode, done.stdout) == (0, "a|--help|-x=1|--|b\n")
    assert run("echo-words", "three").returncode == 3


def test_an_application_has_its_own_commands(run):
    done = run("example", "orders", "2", "--seed", "7")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [0, 1]
    assert "klamm example orders" in run("example", "orders", "--help").stdout
    assert run("example", "orders", "--no-such").returncode == 2


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("fails", 1, "the till is empty"),
        ("misconfigured", 2, "no till is configured"),
        ("lost", 1, "command lost: acme_words:nothing cannot be imported"),
        ("gone", 1, "command gone: acme_gone:main cannot be imported: No module named 'acme_gone'"),
    ],
)
def test_what_goes_wrong_is_one_sentence(run, name, code, said):
    done = run(name)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_klamms_own_commands_stay_and_look_for_nobody(run):
    done = run("topic", "--help")
    assert "List, make" in done.stdout
    assert done.stderr == "", "nothing was imported, so nothing is broken"


def test_an_unknown_command_is_unknown(run):
    done = run("nonsense")
    assert done.returncode == 2
    assert "No such command 'nonsense'" in done.stderr
