"""Programs of Hugging Face users: rows as dicts, tokenizers, columns and collators."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import attrs
import numpy as np
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import Flow

REVIEWS: list[dict[str, Any]] = [
    {"text": "compassionately explores the seemingly irreconcilable", "label": 1},
    {"text": "the soundtrack alone is worth the price", "label": 1},
    {"text": "things really get weird", "label": 0},
    {"text": "dull", "label": 0},
]


class Tokenizer:
    """Converts words to numbers, like a tokenizer of another library."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {"[PAD]": 0}

    def __call__(self, text: str, max_length: int | None = None) -> dict[str, list[int]]:
        ids = [self.ids.setdefault(word, len(self.ids)) for word in text.split()][:max_length]
        return {"input_ids": ids, "attention_mask": [1] * len(ids)}


def test_batch_of_text_and_label() -> None:
    batch = next(iter(fl.from_items(REVIEWS).batch(2)))
    assert batch["text"][1].startswith("the soundtrack")
    assert batch["label"].tolist() == [1, 1]


def test_tokenize_and_pad() -> None:
    tokenizer = Tokenizer()
    rows = fl.from_items(REVIEWS).map(lambda row: tokenizer(row["text"]))
    batch = rows.padded_batch(4).collect()[0]
    assert batch["input_ids"].shape == (4, 7)
    assert batch["attention_mask"].sum(axis=1).tolist() == [5, 7, 4, 1]


def test_tokenize_and_keep_the_label() -> None:
    tokenizer = Tokenizer()

    def preprocess(row: dict[str, Any]) -> dict[str, Any]:
        return {**tokenizer(row["text"], max_length=5), "label": row["label"]}

    for batch in fl.from_items(REVIEWS).map(preprocess).shuffle(seed=42).padded_batch(2):
        assert batch["input_ids"].shape == batch["attention_mask"].shape
        assert batch["label"].shape == (2,)


class Encoded(TypedDict):
    input_ids: list[int]
    label: int


def test_typed_rows_with_lists() -> None:
    def encode(row: Mapping[str, Any]) -> Encoded:
        return {"input_ids": [len(word) for word in row["text"].split()], "label": row["label"]}

    batch = fl.from_items(REVIEWS).map(encode).padded_batch(4).collect()[0]
    assert batch["input_ids"].shape == (4, 7)
    assert batch["label"].tolist() == [1, 1, 0, 0]


class Labelled(TypedDict):
    text: str
    label: NotRequired[int]


def test_rows_where_the_label_may_be_missing() -> None:
    rows: list[Labelled] = [{"text": "a", "label": 1}, {"text": "b"}]
    labels = fl.from_items(rows).map(lambda row: row.get("label", -1)).batch(2)
    assert labels.collect()[0].tolist() == [1, -1]


def test_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in REVIEWS))

    def read() -> Iterator[dict[str, Any]]:
        with file.open() as lines:
            yield from map(json.loads, lines)

    train = fl.from_iterable(read).filter(lambda row: row["label"] == 1)
    assert [len(row["text"].split()) for row in train] == [5, 7]


def test_json_lines_as_elements(tmp_path: Path) -> None:
    lines = fl.from_items([json.dumps(row) for row in REVIEWS])
    batch = lines.map(json.loads).select("text", "label").batch(4).collect()[0]
    assert batch["label"].sum() == 2


def test_select_columns() -> None:
    rows = [{"a": i, "b": 2 * i, "c": 3 * i} for i in range(4)]
    batch = fl.from_items(rows).select("a", "c").batch(4).collect()[0]
    assert batch["c"].tolist() == [0, 3, 6, 9]
    assert set(batch) == {"a", "c"}


def test_remove_a_column() -> None:
    def without(row: dict[str, object], *names: str) -> dict[str, object]:
        return {name: value for name, value in row.items() if name not in names}

    rows: list[dict[str, object]] = [{"id": f"r{i}", "length": i} for i in range(3)]
    batch = fl.from_items(rows).map(lambda row: without(row, "id")).batch(3).collect()[0]
    assert batch["length"].tolist() == [0, 1, 2]


def test_rename_a_column() -> None:
    renamed = fl.from_items(REVIEWS).map(
        lambda row: {"sentence": row["text"], "labels": row["label"]}
    )
    batch = renamed.batch(4).collect()[0]
    assert batch["sentence"][3] == "dull"
    assert batch["labels"].tolist() == [1, 1, 0, 0]


def test_add_a_column() -> None:
    lengths = [len(row["text"]) for row in REVIEWS]
    rows = fl.from_items(REVIEWS).zip(fl.from_items([{"length": n} for n in lengths]))
    batch = rows.batch(4).collect()[0]
    assert batch["length"].tolist() == lengths


def test_map_over_batches() -> None:
    def upper(batch: dict[str, Any]) -> dict[str, Any]:
        return {"text": [text.upper() for text in batch["text"]], "label": batch["label"]}

    rows = fl.from_items(REVIEWS).batch(2).map(upper).unbatch()
    assert [row["text"] for row in rows][-1] == "DULL"


def test_map_one_column() -> None:
    rows = fl.from_items(REVIEWS).map_component(str.upper, "text")
    assert rows.map(lambda row: row["text"]).collect()[3] == "DULL"


def test_class_names_to_numbers() -> None:
    names = ["neg", "pos"]
    rows = [{"text": "fine", "label": "pos"}, {"text": "bad", "label": "neg"}]
    numbers = fl.from_items(rows).map_component(names.index, "label")
    assert numbers.batch(2).collect()[0]["label"].tolist() == [1, 0]


class DataCollator:
    def __init__(self, pad: int = 0) -> None:
        self.pad = pad

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, NDArray[np.int64]]:
        longest = max(len(row["input_ids"]) for row in features)
        ids = [
            row["input_ids"] + [self.pad] * (longest - len(row["input_ids"])) for row in features
        ]
        return {"input_ids": np.array(ids), "labels": np.array([row["label"] for row in features])}


def test_collator_class() -> None:
    rows = [{"input_ids": [1] * n, "label": n % 2} for n in (1, 3, 2)]
    batch = fl.from_items(rows).batch(3, collate=DataCollator(pad=9)).collect()[0]
    assert batch["input_ids"].tolist() == [[1, 9, 9], [1, 1, 1], [1, 1, 9]]
    assert batch["labels"].tolist() == [1, 1, 0]


def mask_tokens(
    tokens: NDArray[np.int64], rng: np.random.Generator, probability: float = 0.15
) -> dict[str, NDArray[np.int64]]:
    masked = rng.random(tokens.shape) < probability
    return {
        "input_ids": np.where(masked, 103, tokens),
        "labels": np.where(masked, tokens, -100),
    }


def test_masked_language_model() -> None:
    texts = fl.from_items([np.arange(10, 30) for _ in range(4)])
    batch = texts.random_map(partial(mask_tokens, probability=0.5), seed=0).batch(4).collect()[0]
    masked = batch["input_ids"] == 103
    assert masked.any()
    assert np.array_equal(batch["labels"] != -100, masked)


def chunks(tokens: Sequence[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(tokens) - size + 1, size):
        yield list(tokens[start : start + size])


def test_group_texts_into_blocks() -> None:
    documents = fl.from_items([list(range(n)) for n in (5, 9, 2)])
    blocks = documents.flat_map(lambda tokens: chunks(tokens, 4))
    assert blocks.batch(3).collect()[0].shape == (3, 4)


def test_causal_inputs_and_labels() -> None:
    blocks = fl.from_items([[1, 2, 3, 4], [5, 6, 7, 8]])
    pairs = blocks.map(lambda ids: {"input_ids": ids[:-1], "labels": ids[1:]})
    batch = pairs.batch(2).collect()[0]
    assert batch["input_ids"].tolist() == [[1, 2, 3], [5, 6, 7]]
    assert batch["labels"].dtype == np.int64


def test_pack_tokens_of_a_stream() -> None:
    def pack(texts: Flow[list[int]], length: int) -> Iterator[NDArray[np.int64]]:
        held: list[int] = []
        for ids in texts:
            held += [*ids, 0]
            while len(held) >= length:
                yield np.array(held[:length])
                held = held[length:]

    texts = fl.from_items([[1, 2, 3], [4], [5, 6, 7, 8]])
    packed = fl.from_iterable(lambda: pack(texts, 4)).batch(2, drop_remainder=True)
    assert packed.collect()[0].tolist() == [[1, 2, 3, 0], [4, 0, 5, 6]]


def test_streaming_take_and_skip() -> None:
    stream = fl.from_iterable(lambda: iter(REVIEWS))
    head, tail = stream.take(1), stream.skip(3)
    assert head.collect()[0]["label"] == 1
    assert tail.collect()[0]["text"] == "dull"


def test_train_test_split() -> None:
    train, test = fl.from_items(REVIEWS * 10).split(0.75, seed=42)
    assert len(train.collect()) == 30
    assert test.batch(10).collect()[0]["label"].shape == (10,)


def test_interleave_datasets() -> None:
    english = fl.from_items([{"text": "hello"}] * 4)
    french = fl.from_items([{"text": "bonjour"}] * 4)
    both = english.interleave(french).batch(2)
    assert both.collect()[0]["text"] == ["hello", "bonjour"]


def test_concatenate_datasets_in_a_list() -> None:
    datasets = [fl.from_items(REVIEWS[:2]), fl.from_items(REVIEWS[2:])]
    all_of_them = datasets[0].concat(*datasets[1:])
    assert [row["label"] for row in all_of_them] == [1, 1, 0, 0]


def test_image_classification_with_transforms() -> None:
    def transform(row: dict[str, Any]) -> dict[str, Any]:
        return {"pixel_values": row["image"].transpose(2, 0, 1) / 255.0, "label": row["label"]}

    rows = [{"image": np.zeros((4, 5, 3), dtype=np.uint8), "label": i} for i in range(4)]
    batch = next(iter(fl.from_items(rows).map(transform).batch(4)))
    assert batch["pixel_values"].shape == (4, 3, 4, 5)


def test_audio_to_equal_lengths() -> None:
    def cut(row: dict[str, Any], seconds: float, rate: int) -> dict[str, Any]:
        samples = int(seconds * rate)
        array = row["audio"]["array"][:samples]
        return {"input_values": np.pad(array, (0, samples - len(array))), "label": row["label"]}

    clips = [{"audio": {"array": np.ones(n), "rate": 8}, "label": n} for n in (5, 20)]
    batch = fl.from_items(clips).map(partial(cut, seconds=1.5, rate=8)).batch(2).collect()[0]
    assert batch["input_values"].sum(axis=1).tolist() == [5.0, 12.0]


@attrs.define
class Question:
    question: str
    context: str
    start: int


def test_attrs_rows_of_question_answering() -> None:
    rows = [Question("who?", "it was Ada", 7), Question("where?", "in Paris", 3)]
    questions, contexts, starts = fl.from_items(rows).batch(2).collect()[0]
    assert contexts[1][starts[1] :] == "Paris"
    assert questions == ["who?", "where?"]


def test_nested_answers() -> None:
    rows: list[dict[str, Any]] = [
        {"id": str(i), "answers": {"text": ["x"] * i, "answer_start": [3] * i}} for i in (1, 2)
    ]
    starts = fl.from_items(rows).map(lambda row: row["answers"]["answer_start"])
    assert starts.padded_batch(2, padding=-1).collect()[0].tolist() == [[3, -1], [3, 3]]


def test_text_batches_by_collate_of_columns() -> None:
    batches = fl.from_items(REVIEWS).batch(2, collate={"text": list, "label": np.array})
    assert batches.collect()[1]["text"] == ["things really get weird", "dull"]


def tokenized(rows: Flow[dict[str, Any]], tokenize: Callable[[str], list[int]]) -> list[list[int]]:
    return [tokenize(row["text"]) for row in rows]


def test_dataset_dict() -> None:
    data = {"train": fl.from_items(REVIEWS[:3]), "test": fl.from_items(REVIEWS[3:])}
    lengths = {name: len(tokenized(flow, lambda text: [1])) for name, flow in data.items()}
    assert lengths == {"train": 3, "test": 1}


def test_column_of_all_rows() -> None:
    labels = [row["label"] for row in fl.from_items(REVIEWS)]
    assert np.bincount(labels).tolist() == [2, 2]
