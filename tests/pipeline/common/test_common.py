"""The small parts: cores, keyed randomness, signs of life, names of languages, schemas."""

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.common import cores, counter_rng, heartbeat
from pipeline.common.heartbeat import Heartbeat
from pipeline.common.language_codes import base_code, is_code, wikipedia_code
from pipeline.common.schema import Section, option, without_effect
from pipeline.errors import ConfigError, InputError
from pipeline.text.encodings import candidates
from pipeline.text.sentences import split_sentences
from pipeline.text.wikitext import Extractor, namespaces
from tests.support.refusals import refused
from tests.support.runs import configured


def test_cores_are_those_of_its_affinity_and_no_more_than_slurm_gave(monkeypatch):
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    before = os.sched_getaffinity(0)
    assert cores.available() == len(before)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert cores.available() == 1
    finally:
        os.sched_setaffinity(0, before)
    for words, expected in (("1", 1), ("4096", len(before))):
        monkeypatch.setenv("SLURM_CPUS_PER_TASK", words)
        assert cores.available() == expected


def test_gpus_are_those_of_the_environment_or_of_the_driver(monkeypatch, tmp_path):
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    monkeypatch.setattr(cores, "NVIDIA", tmp_path / "nvidiactl")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert cores.gpus() == ["0", "1"]
    for visible, expected in (("", []), ("3,GPU-8f", ["3", "GPU-8f"])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert cores.gpus() == expected


# Draws are functions of a key and a position, and look random.


@given(st.integers(0, 2**31), st.lists(st.integers(0, 2**62), min_size=1, max_size=50))
def test_a_draw_depends_on_key_and_position_alone(seed, positions):
    key = counter_rng.key(seed, "test")
    together = counter_rng.random_bits(key, np.array(positions))
    alone = [int(counter_rng.random_bits(key, np.array([p]))[0]) for p in positions]
    assert together.tolist() == alone


def test_a_key_is_the_same_in_every_version():
    parts = [(0, "a"), (1, "a"), (0, "b"), (0, "a", 1), (0, "a", "1", "2"), (0, "a", "12")]
    keys = [counter_rng.key(*each) for each in parts]
    assert len({int(key) for key in keys}) == len(keys)
    assert int(counter_rng.key(0, "pairs", 3)) == 0x9B53268F22428CDF
    assert counter_rng.random_bits(counter_rng.key(0, "x"), np.arange(2)).tolist() == [
        2404556396829759006,
        18076970293374853839,
    ]


def test_uniform_draws_fill_the_unit_interval_evenly():
    draws = counter_rng.uniform(counter_rng.key(0, "u"), np.arange(200_000))
    counts, _ = np.histogram(draws, bins=20, range=(0, 1))
    expected = 10_000
    assert ((counts - expected) ** 2 / expected).sum() < 45  # chi-squared, 19 degrees, p = 0.0007


@given(st.integers(1, 2000))
def test_binomial_draws_have_mean_and_variance_of_fair_coins(n):
    keys = counter_rng.random_bits(counter_rng.key(n, "coins"), np.arange(4000))
    heads = counter_rng.binomial_half(keys, np.full(4000, n))
    assert heads.min() >= 0
    assert heads.max() <= n
    assert abs(heads.mean() - n / 2) < 5 * np.sqrt(n / 4 / 4000)
    assert 0.85 < heads.var() / (n / 4) < 1.15


@given(st.integers(0, 500), st.integers(0, 9))
def test_a_permutation_holds_everything_once(n, seed):
    assert sorted(counter_rng.permutation(counter_rng.key(seed, "p"), n)) == list(range(n))


# The liveness probe of a stage's container.


def probe(folder):
    command = [sys.executable, "-m", "pipeline.common.heartbeat", str(folder), "60"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_probe_fails_for_a_rank_that_has_stopped_and_for_no_other(tmp_path):
    assert probe(tmp_path).returncode == 0, "no rank has begun"
    ranks = [Heartbeat(tmp_path, f"rank-{rank}") for rank in range(2)]
    assert probe(tmp_path).returncode == 0
    os.utime(tmp_path / "rank-1", (0, 0))
    told = probe(tmp_path)
    assert told.returncode == 1
    assert "rank-1" in told.stderr
    assert "rank-0" not in told.stderr
    ranks[1].close()
    assert probe(tmp_path).returncode == 0, "one that is done owes no sign"
    (tmp_path / "rank-2").symlink_to(tmp_path / "gone")  # listed, and then not found: it is done
    os.utime(tmp_path / "rank-0", (0, 0))
    assert heartbeat.stale(tmp_path, 60) == ["rank-0"]


def test_a_stage_has_a_heartbeat_while_it_works(tmp_path, monkeypatch):
    with heartbeat.during("prepare") as nowhere:
        nowhere.beat()
    monkeypatch.setenv(heartbeat.FOLDER, str(tmp_path))
    with heartbeat.during("prepare") as kept:
        kept.beat()
        assert [path.name for path in tmp_path.iterdir()] == ["prepare"]
        os.utime(tmp_path / "prepare", (0, 0))
        assert heartbeat.stale(tmp_path, 60) == ["prepare"]
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_no_folder_is_named(tmp_path):
    (tmp_path / "file").touch()
    with refused(InputError, key="heartbeat", value=str(tmp_path / "file")):
        heartbeat.Heartbeat(tmp_path / "file", "rank-0")


# A code of a language, however it is written, is the one that the tables have.


WRITTEN = [("de", "de de-AT de_DE DE deu ger de-formal"), ("zh", "zh zh_CN zh-Hant-TW zho cmn chi")]
WRITTEN += [("sr", "sr sr-Latn srp"), ("ru", "ru ru_RU rus")]


@pytest.mark.parametrize(("code", "written"), WRITTEN)
def test_regions_scripts_and_three_letters_mean_the_same_language(code, written):
    text = "Er kam am 3. Mai z.B. nach Wien. Dr. No ging."
    pages = ["-{zh-cn:a; zh-tw:b}-", '{{"|A}}', "{{仮リンク|B}}"]
    for other in written.split():
        assert (wikipedia_code(other), candidates(other)) == (code, candidates(code))
        assert split_sentences(text, other) == split_sentences(text, code)
        one, two = Extractor(code), Extractor(other)
        assert [one.text(page) for page in pages] == [two.text(page) for page in pages]


BASES = {"zh-yue": "zh", "zh-min-nan": "zh", "zh-classical": "zh", "be-tarask": "be"}
BASES |= {code: code for code in ("simple", "als", "ceb", "tlh")}


@pytest.mark.parametrize(("code", "base"), BASES.items())
def test_wikipedias_own_codes_are_kept(code, base):
    assert (wikipedia_code(code), base_code(code)) == (code, base)
    # The converter of scripts is not enabled in the other wikis of Chinese.
    assert Extractor(code).text("Ion -{x}- here") == "Ion -{x}- here"


DUMPS = """
en:enwiki simple:simplewiki zh-yue:zh_yuewiki yue:zh_yuewiki zh_min_nan:zh_min_nanwiki be-tarask:be_x_oldwiki
be-x-old:be_x_oldwiki nds-nl:nds_nlwiki roa-rup:roa_rupwiki rup:roa_rupwiki nb:nowiki nob:nowiki nn:nnwiki
pt-BR:ptwiki deu_Latn:dewiki iw:hewiki in:idwiki cmn:zhwiki zh-classical:zh_classicalwiki gsw:alswiki als:alswiki
DE:dewiki map-bms:map_bmswiki vi:viwiki ceb:cebwiki
"""


@pytest.mark.parametrize(("language", "dump"), [entry.split(":") for entry in DUMPS.split()])
def test_every_way_to_write_a_language_asks_for_the_dump_that_there_is(language, dump):
    made = configured("download", "+corpus=wiki", f"corpus.language={language}").corpus
    for place in (made.files[0].url, made.files[0].sums):
        assert place.startswith(f"https://dumps.wikimedia.org/{dump}/latest/{dump}-latest-")
    kept = configured("prepare", "+corpus=wiki", f"corpus.language={language}", "corpus.path=FILE").corpus
    assert f"/{language}wiki/" in kept.files[0].url, "which nothing reads: fingerprints stay"


def test_every_language_of_wikipedia_has_a_code_and_a_mistake_is_none():
    assert [code for code in namespaces.LANGUAGES if not is_code(code)] == []
    assert [code for code in ("vn", "xx_YY", "Vietnamese", "none", "v", "", "#") if is_code(code)] == []


# The base of all schemas.


@dataclass(kw_only=True)
class Part(Section, key="part"):
    rate: float = option(1.0, above=0)
    free: float | None = option(None)
    many: list[float] = option([])
    nested: dict[str, Any] = option({})


@dataclass(kw_only=True)
class Switched(Section):
    _only = {"power": [("name", "b", "c"), ("span", 1)], "count": ("folder",), "stop": ("span",), "span": ("name", "b")}  # noqa: RUF012 -- a ClassVar of Section

    name: str = option("a")
    folder: str | None = option(None)
    power: float = option(1.0)
    count: int = option(1)
    span: int = option(1)
    stop: int = option(0)
    inner: Any = None


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("name", ["rate", "free", "many", "nested"])
def test_no_setting_is_infinite_or_nan(name, number):
    value = {"many": [1.0, number], "nested": {"a": {"b": [number]}}}.get(name, number)
    with refused(ConfigError, key=f"part.{name}"):
        Part(**{name: value})


def test_what_another_value_switches_off_is_found():
    found = without_effect(Switched(power=2.0, count=3, inner=Switched(name="b", power=2.0)))
    assert list(found) == ["power=2.0 has no effect with name=a", "count=3 has no effect with folder=null"]
    assert list(without_effect(Switched(name="b", stop=2))) == ["stop=2 has no effect with span=1"]
    assert not list(without_effect(Switched(name="b", folder="x", count=3, span=2, stop=1)))
    assert not list(without_effect(Switched(stop=2))), "of a switch that is not read"
    assert list(without_effect(Switched(name="b", power=2.0, span=2))) == ["power=2.0 has no effect with span=2"]
    assert len(list(without_effect(Switched(name="c", power=2.0, span=2)))) == 1, "of a switch that has no effect"
