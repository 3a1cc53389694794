"""Fingerprints as computed by release 0.1.0, to recognise its unfinished runs.

That release hashed every setting, including defaults, so that any new option changed the
fingerprint. This module lists the settings that it had; a configuration with defaults for all later
ones has the same fingerprint as then.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

# The version of each stage in 0.1.0, and its settings.
_VERSIONS = {
    "download": 1, "vocab": 1, "prepare": 3, "tasks": 1, "train": 1, "convert": 3, "evaluate": 2,
    "report": 4,
}  # fmt: skip
_CORPUS = """corpus.name corpus.reader corpus.language corpus.files corpus.encoding corpus.mend
    corpus.on_error corpus.parts corpus.options"""
_SETTINGS = {
    "download": _CORPUS,
    "vocab": _CORPUS + """ learn size lowercase strip_accents split_chinese sample_bytes seed""",
    "prepare": _CORPUS
    + """ filters.maximum_characters filters.maximum_non_letters filters.banned filters.ngram
        filters.near_duplicates filters.shingle filters.permutations pairs cross_documents
        sequence_length short_sequence_probability duplicates validation_share words
        minimum_sentences minimum_characters split_bytes shard_bytes seed""",
    "tasks": _CORPUS + """ validation_share train_rows dev_rows seed""",
    "train": """data.weights data.window_rows model.name model.layers model.hidden model.heads
        model.feed_forward model.positions model.vocab_size model.dropout
        model.attention_dropout model.initializer_range model.layer_norm_epsilon
        model.attention model.causal objective.name objective.predict objective.next_sentence
        objective.pairs objective.mask_share objective.mask_token_share
        objective.random_token_share objective.whole_word objective.span objective.span_stop
        optimizer.name optimizer.learning_rate optimizer.betas optimizer.epsilon
        optimizer.weight_decay schedule.name schedule.warmup_share schedule.final_share
        schedule.power schedule.decay_share schedule.first_step schedule.total_steps
        schedule.first_batch schedule.batch_share start_optimizer precision batch_size steps
        clip seed evaluate_samples""",
    "convert": """average dtype shard_bytes license onnx""",
    "evaluate": """task.name task.kind task.folder task.columns task.choices task.label task.header
        task.key task.labels task.metrics task.train task.dev task.dev_share task.test
        task.test_columns task.test_rows task.submission task.also task.sample epochs
        batch_sizes learning_rates seeds sequence_length truncation chunks chunk_pooling
        stride encoder layers mix pooling precision warmup_share weight_decay baseline keep
        submit maximum_rows""",
    "report": "",
}


def fingerprint(
    stage: str, settings: Mapping[str, Any], defaults: Mapping[str, Any], inputs: Mapping[str, str]
) -> str | None:
    """Return the fingerprint of release 0.1.0, or None if it had no such stage or option.

    Args:
        stage: name of the stage.
        settings: all settings by dotted key.
        defaults: the schema's default for each setting that has one.
        inputs: fingerprints of the inputs by config key.
    """
    if stage not in _SETTINGS:
        return None
    known = set(_SETTINGS[stage].split())
    later = {key: value for key, value in settings.items() if key not in known}
    if any(key not in defaults or defaults[key] != value for key, value in later.items()):
        return None
    text = json.dumps(
        {
            "stage": stage,
            "version": _VERSIONS[stage],
            "settings": {key: value for key, value in settings.items() if key in known},
            "inputs": inputs,
        },
        sort_keys=True, default=dataclasses.asdict,
    )  # fmt: skip
    return hashlib.sha256(text.encode()).hexdigest()
