"""Vocabulary files of a model folder, and their consistency with the weights."""

import json
from dataclasses import replace
from itertools import chain, zip_longest
from pathlib import Path

import torch
from tokenizers import Tokenizer, processors

from model.config import Json, ModelConfig, Weights
from model.config.architectures import Traits
from pipeline.errors import InputError, first_line
from pipeline.tokenization import wordpiece
from pipeline.tokenization.pretokenize import LONG_WORDS, OLD_LONG_WORDS, members
from pipeline.tokenization.wordpiece import PairFrame

TOKENIZER, VOCAB, TOKENIZER_CONFIG = "tokenizer.json", "vocab.txt", "tokenizer_config.json"
WORD_ROWS = ("encoder.embeddings.word.weight", "masked_head.bias")  # one row per entry
ROLES = ("pad", "unk", "cls", "sep", "mask")  # of the special tokens
# Capitals, accents, ligatures, punctuation, control characters, Chinese, and a long word.
SAMPLES = ("Foo Paris", "É café Über", "ﬁ ① x²", "don't (a-b), c.d!", "a\x07b", "中文a", "a" * 101)


def exists(folder: Path) -> bool:
    """Return whether a folder contains a vocabulary."""
    return any((folder / name).is_file() for name in (TOKENIZER, VOCAB))


def read(folder: Path) -> tuple[str, list[str]]:
    """Return the text of tokenizer.json (made from vocab.txt if missing) and the entries by id.

    Raises:
        InputError: No vocabulary was found, or the two files differ.
    """
    source = wordpiece.read(folder)
    library = Tokenizer.from_str(source)
    entries = wordpiece.entries_of(library)
    if (folder / TOKENIZER).is_file() and (folder / VOCAB).is_file():
        lines = wordpiece.read_vocab(folder / VOCAB)
        for number, (line, entry) in enumerate(zip_longest(lines, entries[: len(lines)]), 1):
            if line != entry:
                raise InputError(
                    f"is {line!r}, but {TOKENIZER} has {entry!r}; delete the wrong file",
                    path=folder / VOCAB,
                    line=number,
                )
    return source, entries


def check_size(config: ModelConfig, entries: int, place: Path) -> None:
    """Check that the model has one embedding per entry."""
    if entries != config.vocab_size:
        raise InputError(
            f"the vocabulary has {entries:,} entries, but the model {config.vocab_size:,} word embeddings; use the "
            "vocabulary that the model was trained with",
            path=place,
        )


def extend_embeddings(config: ModelConfig, state: Weights, old: str, entries: list[str]) -> tuple[ModelConfig, Weights]:
    """Add rows for the entries that a vocabulary has beyond those of tokenizer `old`.

    A new entry is initialised to the mean of its former word pieces, or of all entries if these
    include [UNK] (Hewitt 2021).
    """
    library = Tokenizer.from_str(old)
    unknown = library.token_to_id("[UNK]")
    texts = [entry.removeprefix("##") for entry in entries[config.vocab_size :]]
    pieces = [one.ids for one in library.encode_batch(texts, add_special_tokens=False)]
    grown = dict(state)
    for name in WORD_ROWS:
        rows = state[name]  # (V, H) or (V,)
        new = [(rows[ids] if ids and unknown not in ids else rows).mean(0, dtype=torch.float64) for ids in pieces]
        grown[name] = torch.cat((rows, torch.stack(new).to(rows.dtype)))
    return replace(config, vocab_size=len(entries)), grown


def tokenizer_config(longest: int, source: str) -> Json:
    """Return the content of tokenizer_config.json, from which transformers builds the tokenizer.

    `BertTokenizer` ignores what tokenizer.json says of normalization, words and frames: it builds its own from the
    fields here. So any other tokenizer is a `PreTrainedTokenizerFast`, which ignores nothing.
    """
    library = Tokenizer.from_str(source)
    names = wordpiece.special_names(library.get_vocab(with_added_tokens=True))
    common = {"model_max_length": longest, **{f"{role}_token": name for role, name in zip(ROLES, names, strict=True)}}
    spec = json.loads(library.to_str())  # by the library: old files lack the model's type
    three = library.num_special_tokens_to_add(is_pair=True) == 3
    if is_bert(spec) and three and wordpiece.WordPiece(source).pairs == PairFrame():
        normalizer = spec["normalizer"]
        return {
            "do_lower_case": normalizer["lowercase"],
            "strip_accents": normalizer["strip_accents"],
            "tokenize_chinese_chars": normalizer["handle_chinese_chars"],
            **common,
        }
    # keras-hub and spacy-curated-transformers ask for the case.
    berts = [each for each in members(spec["normalizer"]) if each["type"] == "BertNormalizer"]
    case = {"do_lower_case": berts[0]["lowercase"]} if berts else {}
    return {"tokenizer_class": "PreTrainedTokenizerFast", **case, **common}


def pairs_of(source: str, traits: Traits) -> PairFrame:
    """Return how a model that learnt no pairs frames them: as its tokenizer, or its family where that sets nothing."""
    own = Tokenizer.from_str(source).num_special_tokens_to_add(is_pair=True)
    return wordpiece.WordPiece(source).pairs if own in (3, 4) else PairFrame(traits.separators)


def framed(source: str, segments: bool, pairs: PairFrame) -> str:
    """Return a tokenizer.json that frames texts by [CLS] and [SEP] as training does.

    Many byte-level tokenizers add nothing. Without `segments` the model takes none. The expression that cuts long words
    is today's, which more libraries read.
    """
    source = source.replace(json.dumps(OLD_LONG_WORDS), json.dumps(LONG_WORDS))
    library = Tokenizer.from_str(source)
    entries = wordpiece.entries_of(library)
    _, _, cls, sep, _ = wordpiece.special_names(entries)
    (bare,) = library.encode_batch(["a"], add_special_tokens=False)
    single, pair = library.encode_batch(["a", ("a", "a")])
    first, last = entries.index(cls), entries.index(sep)
    right, more, second = [first, *bare.ids, last], [last] * (pairs.separators - 1), int(pairs.segments)
    types = [0] * len(right + more) + [second] * (len(bare.ids) + 1)
    if (single.ids, pair.ids) == (right, [*right, *more, *bare.ids, last]) and (not segments or pair.type_ids == types):
        return source
    template = processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {f'{sep}:0 ' * pairs.separators}$B:{second} {sep}:{second}",
        special_tokens=[(cls, first), (sep, last)],
    )
    own = library.post_processor
    keeps = own is not None and single.ids == bare.ids  # it only trims offsets
    library.post_processor = processors.Sequence([own, template]) if keeps else template
    return str(library.to_str(pretty=True))


def is_bert(spec: Json) -> bool:
    """Return whether transformers' `BertTokenizer` can express the content of a tokenizer.json."""
    model, normalizer = spec["model"], spec["normalizer"] or {}
    return (
        model["type"] == "WordPiece"
        and model["continuing_subword_prefix"] == "##"
        and model["max_input_chars_per_word"] == 100
        and normalizer.get("type") == "BertNormalizer"
        and normalizer["clean_text"] is True
        and (spec["pre_tokenizer"] or {}).get("type") == "BertPreTokenizer"
    )


def check_ids(folder: Path) -> None:
    """Check that transformers, from a folder's files, reads texts as training read them.

    It gives single texts and pairs the same ids, and the same segments if the model has any.

    Raises:
        RuntimeError: the ids or the segments of a text differ.
    """
    from transformers import AutoTokenizer

    # Of tokenizer.json alone: that other files say otherwise is what must not be.
    ours, theirs = wordpiece.WordPiece((folder / TOKENIZER).read_text("utf-8")), AutoTokenizer.from_pretrained(folder)
    known = ours.library.get_added_tokens_decoder().values()
    added = [f"a {token.content} b" for token in known if not token.special]
    segments = json.loads((folder / "config.json").read_text()).get("type_vocab_size", 1) > 1
    for texts in (*((text,) for text in (*SAMPLES, *added)), SAMPLES[:2], SAMPLES[3:5]):
        parts = [[*ours.encode([text])[0].tolist(), ours.sep] for text in texts]
        first = [ours.cls, *parts[0], *[ours.sep] * (ours.pairs.separators - 1) * (len(texts) - 1)]
        ids = [*first, *chain.from_iterable(parts[1:])]
        trained = (ids, [0] * len(first) + [int(ours.pairs.segments)] * (len(ids) - len(first)))
        made = theirs(*texts, verbose=False)  # some are longer than what was learnt
        types = made.get("token_type_ids", [0] * len(made["input_ids"]))
        given = (made["input_ids"], types if segments else trained[1])
        if given != trained:
            raise RuntimeError(
                f"{folder}: transformers turns {' and '.join(map(repr, texts))} into ids and "
                f"segments {given}, but the model was trained with {trained}: the files are wrong"
            )


def notes_on(folder: Path, original: Path) -> list[str]:
    """Return a note if transformers reads texts in another way by the files of the original.

    Which of the two is as the model was trained is not known: a vocab.txt without a configuration
    is lowercased by transformers, and by capitals in it here.
    """
    from transformers import AutoTokenizer

    ours = AutoTokenizer.from_pretrained(folder)
    try:
        theirs = AutoTokenizer.from_pretrained(original)
        both = (ours, theirs)
        ids = [[made(text, add_special_tokens=False, verbose=False)["input_ids"] for made in both] for text in SAMPLES]
    except Exception as error:  # the library raises nothing narrower
        return [f"tokenizer of {original}: transformers cannot open it ({first_line(error)})"]
    others = [text for text, (mine, other) in zip(SAMPLES, ids, strict=True) if mine != other]
    if not others:
        return []
    return [
        f"tokenizer: by the files of {original} transformers gives other ids to {len(others)} of "
        f"{len(SAMPLES)} samples, e.g. {others[0]!r}"
    ]
